"""The `kdi` command: its sub-commands, and the exit code of what they refuse.

A command's module imports Typer and nothing heavier at its top; what the command works with is imported in its body,
so that `kdi --help` answers at once.
"""

from __future__ import annotations

import sys

import typer

from kdi_assets.cli import broker, check, driver, generate, jars
from kdi_assets.errors import KdiError, Transient

EXIT_DECIDE, EXIT_RETRY = 1, 75  # 0 is done, 2 is Click's for usage; 75 is EX_TEMPFAIL of sysexits.h

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # an error that nobody translated is a bug: its plain traceback, no local values
)
app.command()(jars.jars)
app.command()(check.check)
app.command()(generate.generate)
app.add_typer(broker.app, name="broker")
app.add_typer(driver.app, name="driver")


@app.callback()
def kdi() -> None:
    """Kafka topics as Delta tables, every message exactly once.

    Exit codes: 0 done, 1 someone must decide, 2 usage, 75 a retry helps.
    """


def main() -> None:
    """Run the command line; a refusal goes to stderr and into the exit code."""
    try:
        app(prog_name="kdi")
    except KdiError as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(EXIT_RETRY if isinstance(refusal, Transient) else EXIT_DECIDE)
