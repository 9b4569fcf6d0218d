"""The app of the `kdi` command: its subcommands, and the options that they share.

A command line imports the module of its own command only. The modules import nothing heavier than Typer and the
documents' models at their top, so that `kdi --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.place import refuse_missing_home
from kdi_assets.settings import Settings

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "doctor": "operate.doctor",
        "new": "documents.new",
        "import-kdi": "documents.import_kdi",
        "status": "operate.status",
        "freshness": "operate.freshness",
        "cost": "operate.cost",
        "plan": "streams.plan",
        "drain": "streams.drain",
        "refine": "followers.refine",
        "serve": "followers.serve",
        "audit": "streams.audit",
        "peek": "streams.peek",
        "history": "streams.history",
        "dead-letters": "streams.dead_letters",
        "replay": "streams.replay",
        "resolve": "streams.resolve",
        "upkeep": "operate.upkeep",
        "erase": "operate.erase",
        "check": "documents.check",
        "check-assets": "documents.check_assets",
        "jars": "operate.jars",
        "broker": "local.broker",
        "kinesis": "local.kinesis",
        "driver": "operate.driver",
        "metrics": "operate.metrics",
        "generate": "local.generate",
        "psql": "followers.psql",
        "sql": "operate.sql",
    }
)
"""The module of each command below ``kdi_assets.cli``, in the order of `kdi --help`. It has a function of its own name,
and may have a ``HELP`` for it; or an ``app`` of several commands."""
OF_A_LAKE = (
    *("status", "freshness", "cost", "plan", "drain", "refine", "serve", "audit", "peek", "history", "dead-letters"),
    *("replay", "resolve", "upkeep", "erase", "check-assets", "sql"),
)
"""Commands about tables that exist, or that would make some."""


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

    To import the modules of all commands, and to let Typer read their signatures, takes longer than to read documents.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # an unexpected exception is a bug: show its plain traceback, no local values
    )
    app.callback()(kdi)
    for name in [n for n in COMMANDS if n in arguments[:1]] or COMMANDS:
        _add_command(app, name)
    return app


def _add_command(app: typer.Typer, name: str) -> None:
    module = import_module(f"kdi_assets.cli.{COMMANDS[name]}")
    if group := getattr(module, "app", None):
        app.add_typer(group, name=name)
    else:
        function = getattr(module, COMMANDS[name].rpartition(".")[2])
        app.command(name, help=getattr(module, "HELP", None))(function)
