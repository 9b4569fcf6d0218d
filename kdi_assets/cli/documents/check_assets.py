"""`kdi check-assets`: for CI pipelines; drains streams, runs all their checks, fails if a check finds an error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.errors import NothingToCheck
from kdi_assets.cli.options import AsJson, Defs, StreamNames, selected_streams
from kdi_assets.cli.output import EXIT_DECIDE, print_json, print_progress, table_text
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.components.gate import Gate
    from kdi_assets.documents.model.stream import Stream

HEAD = ("STREAM", "CHECK", "RESULT", "DETAIL")
NOTHING_DRAINED = "no message was drained, so the checks say nothing about the document"


def check_assets(
    streams: StreamNames = None,
    drain: Annotated[bool, typer.Option("--drain/--no-drain", help="Drain before the checks; or only check.")] = True,
    costly: Annotated[bool, typer.Option("--costly/--cheap", help="All checks, or those that need no Spark.")] = True,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Drain streams in this process and run all their checks; for CI pipelines.

    Runs Dagster without its services, on a temporary instance. Drains into the
    lake of KDI_LAKE, also where a document names another one, and announces
    nothing. A paused stream is drained only if it is named; a retired stream is
    never drained.

    Exit codes: 0 every run succeeded and no check found an error; 1 otherwise,
    or no document describes a stream. Warnings are shown and do not fail.
    """
    import dagster as dg

    from kdi_assets.components.gate import run_gate
    from kdi_assets.documents.loading.loader import defs_folder

    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    gates = []
    chosen = selected_streams(streams or (), defs)
    if not chosen:
        raise NothingToCheck(folder=str(defs or defs_folder()))
    with dg.DagsterInstance.ephemeral() as instance:
        for stream in chosen:
            # A person paused the stream for everything that drains all streams; a person who names it decides again.
            drains = drain and (stream.status == "active" or (bool(streams) and stream.status == "paused"))
            print_progress(f"{'draining and checking' if drains else 'checking'} {stream.name}")
            gates.append(run_gate(_kept_apart(stream) if drain else stream, instance, drains=drains, costly=costly))
    if as_json:
        for gate in gates:
            print_json({**asdict(gate), "passed": gate.passed})
    else:
        typer.echo(_text(gates))
    if not all(gate.passed for gate in gates):
        raise typer.Exit(EXIT_DECIDE)


def _kept_apart(stream: Stream) -> Stream:
    """The stream without what a drain of a pull request must not reach: the document's lake, and who hears of files."""
    return replace(stream, lake="", other_lakes=(), announce=None)


def _text(gates: Sequence[Gate]) -> str:
    rows = []
    for gate in gates:
        if gate.offsets is not None:
            said = f"{counted(gate.offsets, 'offset')} drained" if gate.offsets else NOTHING_DRAINED
            rows += [(gate.stream, "drain", "passed" if gate.offsets else "WARN", said)]
        rows += [(gate.stream, o.check, _result(o.level, blocking=o.blocking), o.said) for o in gate.outcomes]
        rows += [(gate.stream, "run", "FAILED", gate.failure.splitlines()[0])] if gate.failure else []
    failures = [gate.failure for gate in gates if gate.failure]
    return "\n".join([table_text(HEAD, rows, align="<<<<"), *failures])


def _result(level: str, *, blocking: bool) -> str:
    if level == "passed":
        return "passed"
    return level.upper() + (" (blocks)" if blocking and level == "error" else "")
