"""`kdi driver`: run, inspect and stop the warm driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import exit_if_refused, print_refusal, print_result
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
    number: Annotated[int, typer.Option(metavar="N", min=1, help="Which driver of several.")] = 1,
) -> None:
    """Run a warm driver in the foreground until Ctrl-C; several share the clients, each with its number."""
    from kdi_assets.runtime.driver.driver import Ending, run_driver

    ending = Ending.RECYCLED
    while ending is Ending.RECYCLED:
        ending = run_driver(
            Settings.from_environment(),
            number=number,
            idle_exit_seconds=idle_exit or None,
            recycle_after=recycle_after or None,
            report=typer.echo,
        )


@app.command()
def status(
    as_json: AsJson = False,
    number: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only this driver; default: all.")] = None,
) -> None:
    """Show the clients and jobs of the warm driver, or of each of several."""
    from kdi_assets.runtime.driver.control import driver_status
    from kdi_assets.runtime.driver.drivers import driver_folder
    from kdi_assets.runtime.errors import DriverGone

    home = Settings.from_environment().home
    folders = _running(home) if number is None else {number: driver_folder(home, number)}
    refused = []
    for which, folder in folders.items():
        try:
            fields = {"number": which, **driver_status(folder)}
            print_result(_line(fields), fields, as_json=as_json)
        except DriverGone as gone:
            if len(folders) == 1:
                raise
            refused.append(gone)
            line = f"{_name(which)}: does not answer: {gone.reason}"
            print_result(line, {"number": which}, as_json=as_json, error=gone)
    exit_if_refused(refused)


def _name(number: int) -> str:
    return "driver" if number == 1 else f"driver {number}"


def _line(fields: Mapping[str, Any]) -> str:
    idle = "" if fields["idle_seconds"] is None else f", idle for {fields['idle_seconds']:.0f} s"
    clients = f"{len(fields['clients'])} attached, {fields['jobs']} jobs running, {fields['served']} served"
    return f"{_name(fields['number'])}: process {fields['pid']}, {clients}{idle}"


@app.command()
def stop() -> None:
    """Stop the warm drivers and the jobs of attached clients; if none runs, say so."""
    from kdi_assets.runtime.driver.driver import stop_driver
    from kdi_assets.runtime.errors import DriverGone, DriverHangs

    hung: list[DriverHangs] = []
    for folder in _running(Settings.from_environment().home).values():
        try:
            stop_driver(folder)
        except DriverHangs as hangs:
            hung.append(hangs)
            print_refusal(hangs)
        except DriverGone as gone:
            typer.echo(f"no warm driver runs for {gone.home}: {gone.reason}")
    exit_if_refused(hung)


def _running(home: Path) -> dict[int, Path]:
    """Folders of the drivers by number; if none runs, that of the first, which answers why."""
    from kdi_assets.runtime.driver.drivers import running_drivers

    return running_drivers(home) or {1: home}
