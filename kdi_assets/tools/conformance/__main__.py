"""`python -m kdi_assets.tools.conformance`: plays scenarios with writers, and prints and writes the verdicts."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.errors import KdiError
from kdi_assets.runtime.jars import locked_jars
from kdi_assets.settings import Settings
from kdi_assets.tools.conformance.adapter import Adapter, adapter_names, load_adapter
from kdi_assets.tools.conformance.report import added_to, cell_text, write_page
from kdi_assets.tools.conformance.scenario import Scenario, load_scenario, scenario_names
from kdi_assets.tools.conformance.suite import ScenarioResult, Suite
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, start_broker

# Otherwise scenarios would wait for what a broker does every ten seconds or less often.
BROKER_TURNS = {"log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "100"}
EXIT_FAILED, EXIT_ERROR = 1, 75

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(adapter_names())}, or the path of an adapter's file; several times for several."
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None, typer.Option(help="A scenario's name, or the path of its file; default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the moments of kills.")] = 1,
    kafka: Annotated[str, typer.Option(help="Bootstrap servers; default: a broker of the run's own.")] = "",
    work: Annotated[Path | None, typer.Option(help="A new folder for tables and logs; it is kept.")] = None,
    results: Annotated[Path | None, typer.Option(help="JSON file of all results; those of this run go in.")] = None,
    write: Annotated[Path | None, typer.Option(help="Page to write the table into, between its marks.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List scenarios and adapters, and end.")] = False,
) -> None:
    """Judge writers from Kafka to Delta: does each message arrive once, whatever happens?

    Exit codes: 0 every verdict is "right" or an allowed refusal; 1 another
    verdict, or a command of an adapter failed; 2 usage; 75 the broker failed,
    and a retry helps.
    """
    if list_:
        _list()
        return
    if not adapter:
        raise typer.BadParameter(f"give one of {', '.join(adapter_names())}, or a file", param_hint="--adapter")
    adapters = [load_adapter(name) for name in adapter]
    scenarios = [load_scenario(name) for name in scenario or scenario_names()]
    settings = Settings.from_environment()
    with _folder(work) as folder, _broker(kafka, folder, settings) as servers:
        suite = Suite(servers, folder, settings.home, seed, _progress)
        played = list(_each_saved(suite, adapters, scenarios, results))
    if write:
        everything = added_to(results, ()) if results else played
        write_page(write, everything, command=_command(adapter), broker=_broker_name(kafka))
    if not all(result.verdict.passed for result in played):
        raise typer.Exit(EXIT_FAILED)


def _each_saved(
    suite: Suite, adapters: Sequence[Adapter], scenarios: Sequence[Scenario], results: Path | None
) -> Iterator[ScenarioResult]:
    """Print and save each result at once: a later one may fail."""
    for result in suite.run(adapters, scenarios):
        typer.echo(f"{result.adapter}  {result.scenario}  {cell_text(result.verdict)}")
        for line in (*result.verdict.errors, *result.verdict.decisions, *result.verdict.first):
            typer.echo(f"    {line}")
        if results:
            added_to(results, [result])
        yield result


def _command(adapters: Sequence[str]) -> str:
    """The command that makes the page again, for the page."""
    return " ".join(["python -m kdi_assets.tools.conformance", *(f"--adapter {shlex.quote(a)}" for a in adapters)])


def _list() -> None:
    for name in scenario_names():
        scenario = load_scenario(name)
        typer.echo(f"{name}: {scenario.title}\n    {scenario.purpose}")
    typer.echo(f"adapters: {', '.join(adapter_names())}")


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        if work.exists() and any(work.iterdir()):
            raise typer.BadParameter(f"{work} is not empty", param_hint="--work")
        work.mkdir(parents=True, exist_ok=True)
        yield work.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _broker(kafka: str, folder: Path, settings: Settings) -> Iterator[str]:
    if kafka:
        yield kafka
        return
    options = (*JVM_OPTIONS, *QUICK_START)
    broker = start_broker(folder / "broker", home=settings.home, jvm_options=options, properties=BROKER_TURNS)
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def _broker_name(kafka: str) -> str:
    (version,) = (jar.coordinate.split(":")[2] for jar in locked_jars("broker") if ":kafka_2.13:" in jar.coordinate)
    return "a broker that was there before" if kafka else f"a Kafka {version} of the suite's own"


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def main() -> None:
    """Run the command line; an error is printed in its three parts."""
    # As Ctrl-C does: writers, service and broker are stopped, topics are deleted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app(prog_name="python -m kdi_assets.tools.conformance")
    except KdiError as refusal:
        typer.echo(str(refusal), err=True)
        sys.exit(_exit_code(refusal))


def _exit_code(refusal: KdiError) -> int:
    from kdi_assets.errors import Transient
    from kdi_assets.tools.conformance.errors import FileMistakes, UnknownName

    if isinstance(refusal, FileMistakes | UnknownName):
        return 2
    return EXIT_ERROR if isinstance(refusal, Transient) else EXIT_FAILED


if __name__ == "__main__":
    main()
