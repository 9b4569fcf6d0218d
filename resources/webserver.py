"""``python -m kdi_assets.resources.webserver``: Dagster's UI, which asks code servers less often whether they changed.

The options are those of ``dagster-webserver``.
"""

from __future__ import annotations

import sys

from kdi_assets.resources.dagster_internals import run_webserver

PROGRAM = "python -m kdi_assets.resources.webserver"


def main() -> None:
    """Serve until SIGTERM or SIGINT, like ``dagster-webserver``."""
    run_webserver(sys.argv[1:], program=PROGRAM)


if __name__ == "__main__":
    main()
