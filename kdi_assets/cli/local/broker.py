"""`kdi broker`: the embedded broker in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.cli.options import LocalPort
from kdi_assets.settings import Settings

app = typer.Typer(no_args_is_help=True, help="The embedded Kafka broker, for work on one machine.")


@app.callback()
def broker() -> None:
    """The embedded Kafka broker, for work on one machine."""


@app.command()
def run(
    port: LocalPort = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the broker's data; default: broker in KDI_HOME.")] = None,
) -> None:
    """Run a broker on localhost until Ctrl-C; its data stays."""
    from kdi_assets.tools.local.broker import USUAL_PORT, run_broker

    home = Settings.from_environment().home
    run_broker(data or home / "broker", home=home, port=port or USUAL_PORT, report=typer.echo)
