"""The `kdi` command: its subcommands, and the exit code of refusals.

The modules of commands import nothing heavier than Typer at their top, so that `kdi --help` answers at once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from copy import copy
from typing import Annotated

import typer
from typer.models import CommandInfo

from kdi_assets.cli.documents import check, check_assets, import_kdi, new
from kdi_assets.cli.followers import psql, refine, serve
from kdi_assets.cli.local import broker, generate, kinesis
from kdi_assets.cli.operate import cost, doctor, driver, erase, freshness, jars, metrics, sql, status, upkeep
from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import exit_code, print_refusal
from kdi_assets.cli.place import refuse_missing_home
from kdi_assets.cli.streams import audit, dead_letters, drain, history, peek, plan, replay, resolve
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an unexpected exception is a bug: show its plain traceback, no local values
)
app.command()(doctor.doctor)
app.command()(new.new)
app.command("import-kdi")(import_kdi.import_kdi)
app.command(help=status.HELP)(status.status)
app.command()(freshness.freshness)
app.command()(cost.cost)
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
app.add_typer(kinesis.app, name="kinesis")
app.add_typer(driver.app, name="driver")
app.add_typer(metrics.app, name="metrics")
app.command()(generate.generate)
app.command()(psql.psql)
app.command()(sql.sql)

OF_A_LAKE = (
    *("status", "freshness", "cost", "plan", "drain", "refine", "serve", "audit", "peek", "history", "dead-letters"),
    *("replay", "resolve", "upkeep", "erase", "check-assets", "sql"),
)
"""Commands about tables that exist, or that would make some."""


@app.callback()
def kdi(
    context: typer.Context,
    defs: Defs = None,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what Kafka's clients and Spark log; before the command.")
    ] = False,
) -> None:
    """Kafka topics as Delta tables, every message exactly once.

    The options may stand before or after the command; if an option is given
    twice, the one after the command counts. Commands without --json ignore it.

    Exit codes: 0 done, 1 someone must decide, 2 usage, 75 a retry helps.

    Environment: KDI_LAKE: root of the tables. KDI_KAFKA: bootstrap servers of
    the cluster main. KDI_SPARK_MASTER: Spark's master. KDI_DRIVER: own, shared
    (the warm driver) or auto (the warm driver if one runs for the lake).
    KDI_DEFS: folder of the YAML documents. KDI_HOME: folder of jars, broker
    data and the default lake. KDI_ALERT_WEBHOOK: where the lag sensor sends
    alerts. KDI_CATALOG: glue or spark: where tables are registered. KDI_PRICES:
    what a CPU second, a gigabyte and a request cost, for kdi cost.
    KDI_S3_BUCKETS: buckets of tables besides that of KDI_LAKE.
    KDI_AUTOMATION: on or off: whether Dagster's sensors and schedules are on.
    """
    if verbose:
        os.environ["KDI_VERBOSE"] = "1"
    try:
        settings = Settings.from_environment()
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    if context.invoked_subcommand in OF_A_LAKE and "--help" not in sys.argv:
        refuse_missing_home(settings)


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The app with nothing but the command that the arguments begin with; the whole app if they begin otherwise.

    Typer reads the signatures of all commands of an app at each start, which takes longer than to read the documents.
    """
    chosen, name = copy(app), arguments[0] if arguments else ""
    chosen.registered_commands = [c for c in app.registered_commands if _name(c) == name]
    chosen.registered_groups = [group for group in app.registered_groups if group.name == name]
    return chosen if chosen.registered_commands or chosen.registered_groups else app


def _name(command: CommandInfo) -> str | None:
    return command.name or (command.callback.__name__ if command.callback else None)


OBJECTS_WITHOUT_SESSION = 200_000
"""So many new objects before Python looks for garbage, some 20 MB, until there is a session. By default 700: what a
command imports is no garbage, and to look at it hundreds of times took a twentieth of the CPU of a small drain."""


def main() -> None:
    """Run the command line; print a refusal on stderr and exit with its code."""
    gc.set_threshold(OBJECTS_WITHOUT_SESSION)
    try:
        app_for(sys.argv[1:])(prog_name="kdi")
    except KdiError as refusal:
        print_refusal(refusal)
        sys.exit(exit_code([refusal]))
