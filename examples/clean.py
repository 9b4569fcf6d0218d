"""`make clean-demo`: remove broker data, lake and Dagster's state together; they only fit together."""

from __future__ import annotations

from shutil import rmtree

from examples.parts import State, say


def main() -> None:
    """Remove the state of demo and dev, unless a process still uses it."""
    state, on_s3 = State.of_checkout(), State.of_checkout(on_s3=True)
    for used in (state, on_s3):
        used.refuse_if_used(then="make clean-demo")
    for folder in (state.broker, state.lake, state.dagster, state.logs, on_s3.folder):
        rmtree(folder, ignore_errors=True)
    say(f"removed broker data, lakes, Dagster's state and logs from {state.home}")


if __name__ == "__main__":
    main()
