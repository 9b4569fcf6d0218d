"""`kdi driver`: run, look at and stop the warm driver."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import answer
from kdi_assets.settings import Settings

app = typer.Typer(help="The warm driver: a JVM with Spark that runs attach to in half a second.", no_args_is_help=True)


@app.command()
def run(
    idle_exit: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="End after so long without a client; 0: never.")
    ] = 3600,
    recycle_after: Annotated[
        int, typer.Option(metavar="N", min=0, help="Start a new JVM after N clients, when none is attached; 0: never.")
    ] = 1000,
) -> None:
    """Own a warm driver in the foreground, until Ctrl-C."""
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
    """Say who is attached to the warm driver."""
    from kdi_assets.runtime.driver.control import driver_status

    told = driver_status(Settings.from_environment().home)
    idle = "" if told["idle_seconds"] is None else f", idle for {told['idle_seconds']:.0f} s"
    attached = f"{len(told['clients'])} attached, {told['jobs']} jobs running, {told['served']} served"
    line = f"driver: process {told['pid']}, {attached}{idle}"
    answer(line, told, as_json=as_json)


@app.command()
def stop() -> None:
    """Stop the warm driver, and the jobs of whoever is attached."""
    from kdi_assets.runtime.driver.driver import stop_driver

    stop_driver(Settings.from_environment().home)
