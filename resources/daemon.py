"""``python -m kdi_assets.resources.daemon``: Dagster's daemon, which costs less while nothing happens.

``dagster-daemon`` reads all definitions from every code server each minute, and asks it every second whether it was
replaced. Here definitions are read when they have changed. The commands and options are those of ``dagster-daemon``.
"""

from __future__ import annotations

import sys

from kdi_assets.resources.dagster_internals import run_daemon

PROGRAM = "python -m kdi_assets.resources.daemon"


def main() -> None:
    """Work until SIGTERM or SIGINT, like ``dagster-daemon``."""
    run_daemon(sys.argv[1:], program=PROGRAM)


if __name__ == "__main__":
    main()
