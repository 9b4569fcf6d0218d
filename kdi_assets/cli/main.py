"""The `kdi` command: its subcommands, and the exit code of refusals.

The modules of commands import nothing heavier than Typer at their top, so that `kdi --help` answers at once.
"""

from __future__ import annotations

import sys

import typer

from kdi_assets.cli import (
    audit,
    broker,
    check,
    check_assets,
    dead_letters,
    doctor,
    drain,
    driver,
    erase,
    freshness,
    generate,
    history,
    import_kdi,
    jars,
    metrics,
    new,
    peek,
    plan,
    psql,
    refine,
    replay,
    resolve,
    serve,
    status,
    upkeep,
)
from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import exit_code, print_refusal
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # an unexpected exception is a bug: show its plain traceback, no local values
)
app.command()(doctor.doctor)
app.command()(new.new)
app.command("import-kdi")(import_kdi.import_kdi)
app.command()(status.status)
app.command()(freshness.freshness)
app.command()(plan.plan)
app.command()(drain.drain)
app.command()(refine.refine)
app.command()(serve.serve)
app.command()(audit.audit)
app.command()(peek.peek)
app.command()(history.history)
app.add_typer(dead_letters.app, name="dead-letters")
app.command()(replay.replay)
app.command(help=resolve.HELP)(resolve.resolve)
app.command()(upkeep.upkeep)
app.command()(erase.erase)
app.command()(check.check)
app.command("check-assets")(check_assets.check_assets)
app.command()(jars.jars)
app.add_typer(broker.app, name="broker")
app.add_typer(driver.app, name="driver")
app.add_typer(metrics.app, name="metrics")
app.command()(generate.generate)
app.command()(psql.psql)


@app.callback()
def kdi(defs: Defs = None, as_json: AsJson = False) -> None:
    """Kafka topics as Delta tables, every message exactly once.

    The options may stand before or after the command; if an option is given
    twice, the one after the command counts. Commands without --json ignore it.

    Exit codes: 0 done, 1 someone must decide, 2 usage, 75 a retry helps.

    Environment: KDI_LAKE: root of the tables. KDI_KAFKA: bootstrap servers of
    the cluster main. KDI_SPARK_MASTER: Spark's master. KDI_DRIVER: own or
    shared. KDI_DEFS: folder of the YAML documents. KDI_HOME: folder of jars,
    broker data and the default lake. KDI_ALERT_WEBHOOK: where the lag sensor
    sends alerts. KDI_CATALOG: glue or spark: where tables are registered.
    """
    try:
        Settings.from_environment()
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from wrong


def main() -> None:
    """Run the command line; print a refusal on stderr and exit with its code."""
    try:
        app(prog_name="kdi")
    except KdiError as refusal:
        print_refusal(refusal)
        sys.exit(exit_code([refusal]))
