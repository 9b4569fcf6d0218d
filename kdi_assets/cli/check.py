"""`kdi check`: are the documents right, and do their schemas and expressions mean anything to Spark?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import typer

from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import EXIT_DECIDE, exit_code, json_line, refuse
from kdi_assets.cli.session import one_session
from kdi_assets.errors import KdiError
from kdi_assets.stream.message_rules import ROUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from kdi_assets.config.errors import DocumentMistake
    from kdi_assets.config.loader import LoadedFolder
    from kdi_assets.config.yaml_documents import YamlDocument
    from kdi_assets.drain.rules.errors import ShapeMistake
    from kdi_assets.formats.registry.errors import SubjectVersionUnknown
    from kdi_assets.stream.stream import Stream

RIGHT = {
    "schema": "Spark DDL, e.g. id bigint, at timestamp",
    "coordinates": "e.g. kafka",
    "tombstones": "skip or dead_letter",
    "dead_letter_payload": "withhold, or keep if dead letters may hold what is masked",
    "explode.": "a name of its own, and Spark SQL of an array over the fields of `schema` and the struct kafka",
    "format.avro": "a schema of Avro, of a record",
    "format.json": "a JSON Schema of an object, or a schema in the document, which goes ahead of it",
    "format.protobuf": "a message that a table can hold",
    "mask.": "the path of a column of the table",
}
"""By what the path of a field begins with."""

PLAIN_DATE = "current_date()"
RIGHT_OTHERWISE = "Spark SQL over the fields of `schema` and the struct kafka"


def check(defs: Defs = None, as_json: AsJson = False) -> None:
    """Check every document: fields, clusters, tables, and with Spark the schemas and expressions.

    Every mistake is named with file, line, field and what would be right; with one or more the exit code is 1. With
    none, and a registry that does not answer, it is 75.
    """
    from kdi_assets.config.loader import defs_folder, read_streams
    from kdi_assets.config.yaml_documents import sorted_mistakes

    loaded = read_streams(defs or defs_folder())
    if not as_json:
        _show(sorted_mistakes(loaded.mistakes))  # before Spark starts: if it cannot, they have been said
    found = asked_of_spark(loaded) if loaded.streams else Answers()
    if as_json:
        _show_json(loaded, sorted_mistakes([*loaded.mistakes, *found.mistakes]), found)
    else:
        _show(sorted_mistakes(found.mistakes))
        _show_summary(loaded, mistakes=len(loaded.mistakes) + len(found.mistakes), unchecked=len(found.unchecked))
    for refusal in found.refusals.values():
        refuse(refusal)
    if code := EXIT_DECIDE if loaded.mistakes or found.mistakes else exit_code(found.refusals.values()):
        raise typer.Exit(code)


@dataclass
class Answers:
    """What was found out about the streams that were read.

    Attributes:
        refusals: Why registries could not be asked, each by its name.
        unchecked: The streams whose schemas are kept there.
    """

    mistakes: list[DocumentMistake] = field(default_factory=list)
    refusals: dict[str, KdiError] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)


def asked_of_spark(loaded: LoadedFolder) -> Answers:
    """What Spark, and the registries of their schemas, do not understand in the streams that were read.

    A registry that refuses is not asked for the next stream: each of its silences takes seconds.

    Raises:
        JavaMissing, JarMissing, DriverGone: There is no Spark to ask.
    """
    answers = Answers()
    with one_session("check") as session:
        for name, stream in loaded.streams.items():
            _ask(stream, loaded.documents[name], session(), answers)
    return answers


def _ask(stream: Stream, document: YamlDocument, session: SparkSession, answers: Answers) -> None:
    from kdi_assets.formats.registry.errors import SubjectVersionUnknown

    registry = stream.registry.name if stream.registry else ""
    if registry in answers.refusals:
        answers.unchecked.append(stream.name)
        return
    try:
        for wrong in _refusals(stream, session):
            right = next((right for path, right in RIGHT.items() if wrong.field.startswith(path)), RIGHT_OTHERWISE)
            answers.mistakes.append(document.mistake(wrong.field, wrong.message.rstrip("; "), right))
    except SubjectVersionUnknown as unknown:
        answers.mistakes.append(_unknown(unknown, document))
    except KdiError as refusal:
        if not registry:
            raise
        answers.refusals[registry] = refusal
        answers.unchecked.append(stream.name)


def _unknown(unknown: SubjectVersionUnknown, document: YamlDocument) -> DocumentMistake:
    """The mistake of a document that asks for what its registry does not have."""
    given = (re.fullmatch(r"attributes\.(format\.\w+)\.registry", path) for path in document.lines)
    format_ = next((found[1] for found in given if found), "format")
    has_no = f"registry {unknown.registry} has no"
    if unknown.knows_subject:
        message = f"{has_no} version {unknown.version} of {unknown.subject}"
        return document.mistake(f"{format_}.version", message, "one that it has, or none for the latest")
    return document.mistake(f"{format_}.subject", f"{has_no} subject {unknown.subject}", "the subject of the schemas")


def _refusals(stream: Stream, session: SparkSession) -> Iterator[ShapeMistake]:
    """All that is wrong with a stream: ``analyse`` stops at the first, so it is taken out and the rest asked again."""
    from kdi_assets.drain.rules.errors import ShapeMistake
    from kdi_assets.drain.rules.shape import analyse

    rest: Stream | None = stream
    if stream.route and stream.route.others:  # each is asked for in its own document
        rest = replace(stream, route=replace(stream.route, others={}))
    while rest is not None:
        try:
            analyse(rest, session)
            return
        except ShapeMistake as refusal:
            yield refusal
            rest = _without(rest, refusal.field)


def _without(stream: Stream, field: str) -> Stream | None:
    """The stream without one expression, or none if everything else builds on the field."""
    of, _, name = field.partition(".")
    if of in ("columns", "expectations", "mask") and name in getattr(stream, of):
        rest: dict[str, Any] = {of: {key: value for key, value in getattr(stream, of).items() if key != name}}
        return replace(stream, **rest)
    if field == "date" and stream.date_expression == PLAIN_DATE:
        return None
    plain: dict[str, dict[str, Any]] = {
        ROUTE: {"route": None},
        "filter": {"filter": ""},
        "tombstones": {"tombstones": "skip"},
        "dead_letter_payload": {"dead_letter_payload": None},
        "date": {"date_expression": PLAIN_DATE},
    }
    return replace(stream, **plain[field]) if field in plain else None


def _show(mistakes: Iterable[DocumentMistake]) -> None:
    for mistake in mistakes:
        typer.echo(mistake.text())


def _show_summary(loaded: LoadedFolder, *, mistakes: int, unchecked: int) -> None:
    if not loaded.streams and not mistakes:
        typer.echo("no document describes a stream")
        return
    silent = f", not checked for want of a registry: {unchecked}" if unchecked else ""
    typer.echo(f"streams: {len(loaded.streams)}, mistakes: {mistakes}{silent}")


def _show_json(loaded: LoadedFolder, mistakes: Iterable[DocumentMistake], found: Answers) -> None:
    from dataclasses import asdict

    streams = [{"stream": name, "file": d.file, "line": d.line} for name, d in sorted(loaded.documents.items())]
    silent = {"unchecked": found.unchecked, "errors": list(found.refusals.values())} if found.refusals else {}
    json_line({"streams": streams, "mistakes": [asdict(mistake) for mistake in mistakes], **silent})
