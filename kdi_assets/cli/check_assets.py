"""`kdi check-assets`: the gate of a pipeline; drains streams, makes all their checks, fails if one finds an error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.errors import NothingToCheck
from kdi_assets.cli.options import AsJson, Defs, StreamNames, streams_meant
from kdi_assets.cli.output import EXIT_DECIDE, columns, json_line, progress

if TYPE_CHECKING:
    from kdi_assets.components.gate import Gate
    from kdi_assets.stream.stream import Stream

HEAD = ("STREAM", "CHECK", "RESULT", "WHAT IT FOUND")


def check_assets(
    streams: StreamNames = None,
    drain: Annotated[bool, typer.Option("--drain/--no-drain", help="Drain before the checks; or only check.")] = True,
    costly: Annotated[bool, typer.Option("--costly/--cheap", help="All checks, or those that need no Spark.")] = True,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Materialize streams in this process and make all their checks; for pipelines.

    Runs Dagster without its services, on an instance that is thrown away.
    A paused stream is drained only if it is named; a retired one never.

    Exit codes: 0 every run succeeded and no check found an error; 1 otherwise,
    and where there is nothing to check. A warning is shown, and fails nothing.
    """
    import dagster as dg

    from kdi_assets.components.gate import run_gate
    from kdi_assets.config.loader import defs_folder

    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    gates = []
    chosen = streams_meant(streams or (), defs)
    if not chosen:
        raise NothingToCheck(folder=str(defs or defs_folder()))
    with dg.DagsterInstance.ephemeral() as instance:
        for stream in chosen:
            drains = drain and _may_drain(stream, named=bool(streams))
            progress(f"{'draining and checking' if drains else 'checking'} {stream.name}")
            gates.append(run_gate(stream, instance, drains=drains, costly=costly))
    if as_json:
        for gate in gates:
            json_line({**asdict(gate), "passed": gate.passed})
    else:
        typer.echo(_text(gates))
    if not all(gate.passed for gate in gates):
        raise typer.Exit(EXIT_DECIDE)


def _may_drain(stream: Stream, *, named: bool) -> bool:
    """A pause is somebody's decision against whatever drains all streams; who names the stream has decided anew."""
    return stream.status == "active" or (named and stream.status == "paused")


def _text(gates: Sequence[Gate]) -> str:
    rows = []
    for gate in gates:
        rows += [(gate.stream, o.check, _result(o.level, blocking=o.blocking), o.said) for o in gate.outcomes]
        rows += [(gate.stream, "run", "FAILED", gate.failure.splitlines()[0])] if gate.failure else []
    failures = [gate.failure for gate in gates if gate.failure]
    return "\n".join([columns(HEAD, rows, align="<<<<"), *failures])


def _result(level: str, *, blocking: bool) -> str:
    if level == "passed":
        return "passed"
    return level.upper() + (" (blocks)" if blocking and level == "error" else "")
