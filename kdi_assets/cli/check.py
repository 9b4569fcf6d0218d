"""`kdi check`: are the documents right, and do their schemas and expressions mean anything to Spark?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from kdi_assets.components.mistakes import DocumentMistake
    from kdi_assets.components.reading import Loaded
    from kdi_assets.drain.shape import ShapeMistake
    from kdi_assets.stream import Stream

RIGHT = {
    "schema": "Spark DDL, e.g. id bigint, at timestamp",
    "coordinates": "e.g. kafka",
    "tombstones": "skip or dead_letter",
    "dead_letter_payload": "withhold, or keep if dead letters may hold what is masked",
}
PLAIN_DATE = "current_date()"
RIGHT_OTHERWISE = "Spark SQL over the fields of `schema` and the struct kafka"


def check(
    defs: Annotated[
        Path | None, typer.Option("--defs", help="Folder of the YAML documents; default: KDI_DEFS, else the package's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check every document: fields, clusters, tables, and with Spark the schemas and expressions.

    Every mistake is named with file, line, field and what would be right; with one or more the exit code is 1.
    """
    from kdi_assets.components.load import defs_folder, read_streams
    from kdi_assets.components.mistakes import in_order

    loaded = read_streams(defs or defs_folder())
    if not as_json:
        _show(in_order(loaded.mistakes))  # before Spark starts: if it cannot, they have been said
    found = mistakes_for_spark(loaded) if loaded.streams else []
    if as_json:
        _show_json(loaded, in_order([*loaded.mistakes, *found]))
    else:
        _show(in_order(found))
        _show_summary(loaded, mistakes=len(loaded.mistakes) + len(found))
    if loaded.mistakes or found:
        raise typer.Exit(1)


def mistakes_for_spark(loaded: Loaded) -> list[DocumentMistake]:
    """What Spark does not understand in the streams that were read.

    Raises:
        JavaMissing, JarMissing, DriverGone: There is no Spark to ask.
    """
    from pyspark.logger import PySparkLogger

    from kdi_assets.runtime.session import close_session, open_session
    from kdi_assets.settings import Settings

    typer.echo("asking Spark about schemas and expressions …", err=True)
    # PySpark prints every refusal with the JVM's whole stack, which would bury the line that we print of it.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    session = open_session(Settings.from_environment(), app_name="kdi check")
    try:
        return [
            loaded.documents[name].mistake(wrong.field, wrong.message.rstrip("; "), _right(wrong.field))
            for name, stream in loaded.streams.items()
            for wrong in _refusals(stream, session)
        ]
    finally:
        close_session(session)


def _refusals(stream: Stream, session: SparkSession) -> Iterator[ShapeMistake]:
    """All that is wrong with a stream: ``analyse`` stops at the first, so it is taken out and the rest asked again."""
    from kdi_assets.drain.shape import ShapeMistake, analyse

    rest: Stream | None = stream
    while rest is not None:
        try:
            analyse(rest, session)
            return
        except ShapeMistake as refusal:
            yield refusal
            rest = _without(rest, refusal.field)


def _without(stream: Stream, field: str) -> Stream | None:
    """The stream without one expression, or none if everything else builds on the field."""
    path = field.removeprefix("columns.")
    if path in stream.columns and field != path:
        return replace(stream, columns={p: sql for p, sql in stream.columns.items() if p != path})
    if (expected := field.removeprefix("expectations.")) != field:
        return replace(stream, expectations={n: e for n, e in stream.expectations.items() if n != expected})
    if (path := field.removeprefix("mask.")) != field:
        return replace(stream, mask={p: mask for p, mask in stream.mask.items() if p != path})
    if field == "filter":
        return replace(stream, filter="")
    if field == "tombstones":
        return replace(stream, tombstones="skip")
    if field == "dead_letter_payload":
        return replace(stream, dead_letter_payload=None)
    if field == "date" and stream.date_expression != PLAIN_DATE:
        return replace(stream, date_expression=PLAIN_DATE)
    return None


def _right(field: str) -> str:
    if field.startswith("format.avro"):
        return "a schema of Avro, of a record"
    if field.startswith("mask."):
        return "the path of a column of the table"
    if field.startswith("format.protobuf"):
        return "a message that a table can hold"
    return RIGHT.get(field, RIGHT_OTHERWISE)


def _show(mistakes: Iterable[DocumentMistake]) -> None:
    for mistake in mistakes:
        typer.echo(mistake.text())


def _show_summary(loaded: Loaded, *, mistakes: int) -> None:
    if not loaded.streams and not mistakes:
        typer.echo("no document describes a stream")
        return
    typer.echo(f"streams: {len(loaded.streams)}, mistakes: {mistakes}")


def _show_json(loaded: Loaded, mistakes: Iterable[DocumentMistake]) -> None:
    import json
    from dataclasses import asdict

    streams = [{"stream": name, "file": d.file, "line": d.line} for name, d in sorted(loaded.documents.items())]
    typer.echo(json.dumps({"streams": streams, "mistakes": [asdict(mistake) for mistake in mistakes]}))
