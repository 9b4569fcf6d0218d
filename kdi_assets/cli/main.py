"""The `kdi` command, and the exit code of refusals."""

from __future__ import annotations

import gc
import sys

OBJECTS_WITHOUT_SESSION = 200_000
"""So many new objects before Python looks for garbage, some 20 MB, until there is a session. By default 700: what a
command imports is no garbage, and to look at it hundreds of times took a twentieth of the CPU of a small drain."""


def main() -> None:
    """Run the command line; print a refusal on stderr and exit with its code."""
    gc.set_threshold(OBJECTS_WITHOUT_SESSION)  # before all other imports
    from kdi_assets.cli.app import app_for
    from kdi_assets.cli.output import exit_code, print_refusal
    from kdi_assets.errors import KdiError

    try:
        app_for(sys.argv[1:])(prog_name="kdi")
    except KdiError as refusal:
        print_refusal(refusal)
        sys.exit(exit_code([refusal]))
