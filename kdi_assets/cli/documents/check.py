"""`kdi check`: are the documents right, and does Spark understand their schemas and expressions?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdi_assets.cli.documents.check_refined import check_refined
from kdi_assets.cli.documents.spark_findings import SparkFindings
from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import EXIT_DECIDE, NO_DOCUMENTS, exit_code, print_json, print_refusal
from kdi_assets.cli.session import lazy_session
from kdi_assets.documents.model.message_rules import ROUTE, FieldUse
from kdi_assets.errors import KdiError, Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kdi_assets.cli.documents.accept import AcceptedTopics
    from kdi_assets.documents.loading.errors import DocumentMistake
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.loading.yaml_documents import YamlDocument
    from kdi_assets.documents.model.stream import Stream
    from kdi_assets.messages.formats.errors import SubjectVersionUnknown
    from kdi_assets.streams.rules.errors import ShapeMistake
    from kdi_assets.streams.rules.shared_analysis import SharedAnalysis

EXPECTED = {
    "schema": "Spark DDL, e.g. id bigint, at timestamp",
    "coordinates": "e.g. {struct}",
    "tombstones": "skip or dead_letter",
    "dead_letter_payload": "withhold, or keep if dead letters may hold what is masked",
    "explode.": "a new name, and an array in Spark SQL over the fields of `schema` and the struct {struct}",
    "fields.": "a field of the messages: drop, text, or {rename: name}",
    "format.avro": "an Avro schema of a record",
    "format.json": "a JSON Schema of an object, or `schema` in the document, which replaces it",
    "format.protobuf": "a message that a table can hold",
    "mask.": "the path of a column of the table",
    "mask_tagged": "for this column a mask of its own, under `mask`",
    "tags.": "the path of a column of the table",
}
"""What a field takes, by the beginning of its path."""
EXPECTED_OTHERWISE = "Spark SQL over the fields of `schema` and the struct {struct}"
PLAIN_DATE = "current_date()"


AcceptOption = Annotated[bool, typer.Option("--accept", help="First take new topics of patterns into their files.")]


def check(defs: Defs = None, accept: AcceptOption = False, as_json: AsJson = False) -> None:
    """Check every document: fields, clusters and tables; with Spark also schemas, expressions and SQL.

    The SQL of a refined table is checked over its upstream tables, or over the
    columns that their documents describe.

    A table that exists is compared with its document. Prints every mistake with
    file, line, field, and what the field takes.

    No broker is asked, except with --accept: topics that match the pattern of
    a document of many topics, and have no table yet, are added to its file.
    A topic that is gone is shown, and its line stays.

    Exit codes: 0 no mistakes; 1 mistakes; 75 no mistakes, but a registry, the
    lake, or with --accept a broker did not answer, and a retry helps.
    """
    from kdi_assets.documents.loading.loader import defs_folder
    from kdi_assets.documents.loading.yaml_documents import sorted_mistakes

    loaded, accepted = _read_documents(defs or defs_folder(), accept=accept)
    mistakes = sorted_mistakes([*loaded.mistakes, *accepted.mistakes])
    if not as_json:
        accepted.print()
        _print_mistakes(mistakes)  # before Spark starts: it may not start
    found = check_with_spark(loaded, as_json=as_json) if loaded.streams or loaded.refined else SparkFindings()
    of_spark = sorted_mistakes(found.mistakes)
    if as_json:
        _print_json(loaded, sorted_mistakes([*mistakes, *of_spark]), found, accepted)
    else:
        _print_mistakes(of_spark)
        _print_summary(loaded, mistakes=len(mistakes) + len(of_spark), unchecked=len(found.unchecked))
    refusals = [*found.refusals.values(), *accepted.refusals]
    for refusal in refusals:
        print_refusal(refusal)
    if code := EXIT_DECIDE if mistakes or of_spark or accepted.unwritable else exit_code(refusals):
        raise typer.Exit(code)


def _read_documents(folder: Path, *, accept: bool) -> tuple[LoadedFolder, AcceptedTopics]:
    """The documents of a folder, with the topics that were taken into its files first, if that is wanted."""
    from kdi_assets.cli.documents.accept import AcceptedTopics, accept_topics
    from kdi_assets.documents.loading.loader import read_streams

    loaded = read_streams(folder)
    accepted = accept_topics(folder, loaded) if accept else AcceptedTopics()
    return (read_streams(folder) if accepted.changed_files else loaded), accepted


def check_with_spark(loaded: LoadedFolder, *, as_json: bool) -> SparkFindings:
    """What Spark and the schema registries do not understand in the streams and refined tables.

    A registry that did not answer is not asked again: each attempt takes seconds.

    Raises:
        JavaMissing, JarMissing, DriverGone: Spark cannot be used.
    """
    from kdi_assets.settings import Settings
    from kdi_assets.streams.rules.shared_analysis import SharedAnalysis

    findings, analysed = SparkFindings(), SharedAnalysis()
    # Spark only analyses here and runs no task, so a cluster is neither needed nor asked for executors.
    settings = replace(Settings.from_environment(), spark_master="local[1]")
    with lazy_session("check", as_json=as_json, settings=settings) as open_session:
        session = open_session()  # once: each call asks the JVM whether it still runs
        for name, stream in loaded.streams.items():
            _check_stream(stream, loaded.documents[name], session, findings, analysed)
        if loaded.refined:
            check_refined(loaded, session, findings)
    return findings


def _check_stream(
    stream: Stream, document: YamlDocument, session: SparkSession, findings: SparkFindings, analysed: SharedAnalysis
) -> None:
    from kdi_assets.messages.formats.errors import SubjectVersionUnknown
    from kdi_assets.streams.rules.errors import ShapeMistake

    registry = stream.registry.name if stream.registry else ""
    if registry in findings.refusals:
        findings.unchecked.append(stream.name)
        return
    if stream.route and stream.route.others:  # each is checked with its own document
        stream = replace(stream, route=replace(stream.route, others={}))
    known = len(findings.mistakes)
    try:
        for wrong in _shape_mistakes(stream, session, analysed):
            takes = next((t for path, t in EXPECTED.items() if wrong.field.startswith(path)), EXPECTED_OTHERWISE)
            takes = takes.replace("{struct}", stream.source_struct.name)
            if wrong.change != ShapeMistake.change:
                takes = wrong.change
            findings.mistakes.append(document.mistake(wrong.field, wrong.message.rstrip("; "), takes))
        if len(findings.mistakes) == known:
            _check_table(stream, document, session, findings, analysed)
    except SubjectVersionUnknown as unknown:
        findings.mistakes.append(_unknown_schema(unknown, document))
    except KdiError as refusal:
        if not registry:
            raise
        findings.refusals[registry] = refusal
        findings.unchecked.append(stream.name)


def _check_table(
    stream: Stream, document: YamlDocument, session: SparkSession, findings: SparkFindings, analysed: SharedAnalysis
) -> None:
    """Compare the stream's table with the document, if there is one and the stream is still drained."""
    from kdi_assets.delta.log import TableLog
    from kdi_assets.settings import Settings
    from kdi_assets.streams.drain.takeover import refuse_unsuitable

    if stream.status == "retired":
        return

    lake = Settings.from_environment().lake
    try:
        if log := TableLog.open(stream.table_uri(lake)):
            refuse_unsuitable(stream, lake, log, session, analysed=analysed)
    except Terminal as refusal:
        happened, _, run = refusal.message_parts()
        findings.mistakes.append(document.mistake("table", happened.rstrip("."), run))
    except Transient as refusal:
        findings.refusals[stream.root(lake)] = refusal
        findings.unchecked.append(stream.name)


def _unknown_schema(unknown: SubjectVersionUnknown, document: YamlDocument) -> DocumentMistake:
    """The mistake of a document that names a subject or version that its registry does not have."""
    matches = (re.fullmatch(r"attributes\.(format\.\w+)\.registry", path) for path in document.lines)
    format_ = next((found[1] for found in matches if found), "format")
    has_no = f"registry {unknown.registry} has no"
    if unknown.knows_subject:
        message = f"{has_no} version {unknown.version} of {unknown.subject}"
        return document.mistake(f"{format_}.version", message, "an existing version, or none for the latest")
    return document.mistake(f"{format_}.subject", f"{has_no} subject {unknown.subject}", "the subject of the schemas")


def _shape_mistakes(stream: Stream, session: SparkSession, analysed: SharedAnalysis) -> Iterator[ShapeMistake]:
    """All mistakes of a stream: ``analyse`` stops at the first, so its field is removed and the rest analysed."""
    from kdi_assets.streams.rules.errors import ShapeMistake

    rest: Stream | None = stream
    found: set[str] = set()
    while rest is not None:
        try:
            analysed(rest, session)
            return
        except ShapeMistake as refusal:
            if refusal.field in found:
                return  # to leave the field out does not help
            yield refusal
            found.add(refusal.field)
            rest = _without(rest, refusal.field)


def _without(stream: Stream, field: str) -> Stream | None:
    """The stream without one expression; ``None`` if all other expressions depend on the field."""
    group, _, name = field.partition(".")
    if group in ("columns", "expectations", "fields", "mask", "tags") and name in getattr(stream, group):
        rest: dict[str, Any] = {group: {key: value for key, value in getattr(stream, group).items() if key != name}}
        return replace(stream, **rest)
    if group == "fields":
        return replace(stream, fields={**stream.fields, name: FieldUse("drop")})
    if field == "date" and stream.date_expression == PLAIN_DATE:
        return None
    defaults: dict[str, dict[str, Any]] = {
        ROUTE: {"route": None},
        "filter": {"filter": ""},
        "tombstones": {"tombstones": "skip"},
        "dead_letter_payload": {"dead_letter_payload": None},
        "date": {"date_expression": PLAIN_DATE},
    }
    return replace(stream, **defaults[field]) if field in defaults else None


def _print_mistakes(mistakes: Iterable[DocumentMistake]) -> None:
    for mistake in mistakes:
        typer.echo(mistake.text())


def _print_summary(loaded: LoadedFolder, *, mistakes: int, unchecked: int) -> None:
    for name, document in loaded.topic_tables.items():
        if not document.topics:
            typer.echo(f"{name}: no topic has a table yet. Run: kdi check --accept")
    if not (loaded.streams or loaded.refined or loaded.served or loaded.topic_tables or mistakes):
        typer.echo(NO_DOCUMENTS)
        return
    skipped = f", not checked, a registry or the lake did not answer: {unchecked}" if unchecked else ""
    refined = f", refined tables: {len(loaded.refined)}" if loaded.refined else ""
    served = f", served tables: {len(loaded.served)}" if loaded.served else ""
    typer.echo(f"streams: {len(loaded.streams)}{refined}{served}, mistakes: {mistakes}{skipped}")


def _print_json(
    loaded: LoadedFolder,
    mistakes: Iterable[DocumentMistake],
    found: SparkFindings,
    accepted: AcceptedTopics,
) -> None:
    from dataclasses import asdict

    streams = [{"stream": name, "file": d.file, "line": d.line} for name, d in sorted(loaded.documents.items())]
    refined = [{"table": n, "file": d.file, "line": d.line} for n, d in sorted(loaded.refined_documents.items())]
    skipped = {"unchecked": found.unchecked, "errors": list(found.refusals.values())} if found.refusals else {}
    print_json(
        {
            "streams": streams,
            "refined_tables": refined,
            "served_tables": [{"table": name} for name in loaded.served],
            # `topics` only of a document of many topics.
            "mistakes": [{k: v for k, v in asdict(m).items() if k != "topics" or v} for m in mistakes],
            **skipped,
            **accepted.fields(),
        }
    )
