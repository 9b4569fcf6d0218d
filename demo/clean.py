"""`make clean-demo`: remove broker data, lake, database and Dagster's state together; they only fit together."""

from __future__ import annotations

from shutil import rmtree

from demo.parts import State, say
from kdi_assets.follow.serve.postgres.embedded import stop_postgres


def main() -> None:
    """Remove the state of demo and dev, unless a process still uses it."""
    state, on_s3 = State.of_checkout(), State.of_checkout(on_s3=True)
    for used in (state, on_s3):
        used.refuse_if_used(then="make clean-demo")
    stop_postgres(state.postgres)
    for folder in (state.broker, state.lake, state.dagster, state.logs, *state.databases, on_s3.folder):
        rmtree(folder, ignore_errors=True)
    say(f"removed broker data, lakes, PostgreSQL's data, Dagster's state and logs from {state.home}")


if __name__ == "__main__":
    main()
