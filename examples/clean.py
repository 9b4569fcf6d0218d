"""`make clean-demo`: remove broker data, lake and Dagster's state together; they only fit together."""

from __future__ import annotations

from shutil import rmtree

from examples.parts import State, say


def main() -> None:
    """Remove the state of demo and dev, unless a process still uses it."""
    state = State.of_checkout()
    state.refuse_if_used(then="make clean-demo")
    for folder in (state.broker, state.lake, state.dagster, state.logs):
        rmtree(folder, ignore_errors=True)
    say(f"removed broker data, lake, Dagster's state and logs from {state.home}")


if __name__ == "__main__":
    main()
