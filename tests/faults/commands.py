"""A process that runs `kdi` commands, one after the other, without Python's start for each.

Usage: ``python -m tests.faults.commands``; a JSON array of arguments on a line of standard input, the answer as JSON on
a line of standard output. The environment is that of the process, but for what an object before the array sets.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from kdi_assets.cli.main import main


def answer(environment: dict[str, str], arguments: list[str]) -> dict[str, object]:
    """Run one command as the shell would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.dict(os.environ, environment), patch.object(sys, "argv", ["kdi", *arguments]):
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            except Exception as untranslated:  # noqa: BLE001 - a traceback is what the user would see
                err.write(f"Traceback: {untranslated!r}")
                code = -1
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    for line in sys.stdin:
        said = json.dumps(answer(*json.loads(line)))
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
