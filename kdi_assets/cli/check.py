"""`kdi check`: are the documents right, and do their schemas and expressions mean anything to Spark?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdi_assets.components.mistakes import DocumentMistake
    from kdi_assets.components.reading import Loaded

RIGHT = {"schema": "Spark DDL, e.g. id bigint, at timestamp"}
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
    from kdi_assets.drain.shape import ShapeMistake, analyse
    from kdi_assets.runtime.session import close_session, open_session
    from kdi_assets.settings import Settings

    typer.echo(f"asking Spark about {len(loaded.streams)} streams …", err=True)
    session = open_session(Settings.from_environment(), app_name="kdi check")
    found = []
    try:
        for name, stream in loaded.streams.items():
            try:
                analyse(stream, session)
            except ShapeMistake as mistake:
                right = RIGHT.get(mistake.field, RIGHT_OTHERWISE)
                found.append(loaded.documents[name].mistake(mistake.field, mistake.message, right))
    finally:
        close_session(session)
    return found


def _show(mistakes: Iterable[DocumentMistake]) -> None:
    for mistake in mistakes:
        typer.echo(mistake.text())


def _show_summary(loaded: Loaded, *, mistakes: int) -> None:
    if not loaded.streams and not mistakes:
        typer.echo("no document describes a stream")
        return
    typer.echo(f"{len(loaded.streams)} streams read, " + (f"mistakes: {mistakes}" if mistakes else "no mistake"))


def _show_json(loaded: Loaded, mistakes: Iterable[DocumentMistake]) -> None:
    import json
    from dataclasses import asdict

    streams = [{"stream": name, "file": d.file, "line": d.line} for name, d in sorted(loaded.documents.items())]
    typer.echo(json.dumps({"streams": streams, "mistakes": [asdict(mistake) for mistake in mistakes]}))
