"""`kdi driver`: run, inspect and stop the warm driver."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import print_result
from kdi_assets.settings import Settings

app = typer.Typer(help="The warm driver: a JVM with Spark to which runs attach in half a second.", no_args_is_help=True)


@app.command()
def run(
    idle_exit: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="End after this many seconds without a client; 0: never.")
    ] = 3600,
    recycle_after: Annotated[
        int, typer.Option(metavar="N", min=0, help="After N clients, start a new JVM once none is attached; 0: never.")
    ] = 1000,
) -> None:
    """Run a warm driver in the foreground until Ctrl-C."""
    from kdi_assets.runtime.driver.driver import Ending, run_driver

    ending = Ending.RECYCLED
    while ending is Ending.RECYCLED:
        ending = run_driver(
            Settings.from_environment(),
            idle_exit_seconds=idle_exit or None,
            recycle_after=recycle_after or None,
            report=typer.echo,
        )


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the clients and jobs of the warm driver."""
    from kdi_assets.runtime.driver.control import driver_status

    fields = driver_status(Settings.from_environment().home)
    idle = "" if fields["idle_seconds"] is None else f", idle for {fields['idle_seconds']:.0f} s"
    clients = f"{len(fields['clients'])} attached, {fields['jobs']} jobs running, {fields['served']} served"
    print_result(f"driver: process {fields['pid']}, {clients}{idle}", fields, as_json=as_json)


@app.command()
def stop() -> None:
    """Stop the warm driver and the jobs of attached clients; if none runs, say so."""
    from kdi_assets.runtime.driver.driver import stop_driver
    from kdi_assets.runtime.errors import DriverGone

    try:
        stop_driver(Settings.from_environment().home)
    except DriverGone as gone:
        typer.echo(f"no warm driver runs for {gone.home}: {gone.reason}")
