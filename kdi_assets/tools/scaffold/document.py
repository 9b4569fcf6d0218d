"""A proposal as a YAML document with comments about the sample, and its file. It shows no value of a message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import yaml

from kdi_assets.documents.loading.folder import DOCUMENT_NAMES, FOLDER_TYPE, display_path, document_in
from kdi_assets.documents.loading.loader import TOPIC_TABLE, read_streams
from kdi_assets.documents.loading.yaml_documents import parse
from kdi_assets.tools.scaffold.date_candidates import KAFKA, Candidate
from kdi_assets.tools.scaffold.errors import NothingProposed
from kdi_assets.tools.scaffold.infer_types import Array, Struct, ddl_name
from kdi_assets.tools.scaffold.propose import Proposal
from kdi_assets.tools.scaffold.refined_document import refined_document
from kdi_assets.tools.scaffold.remarks import keys_in_words, percent, remarks
from kdi_assets.wording import counted

SHOWN_NAMES, SHOWN_DATES = 20, 5
CLOCK = "%Y-%m-%dT%H:%M:%SZ"
WIDEST = 56
"""Comments begin in this column at most, except after longer lines."""
_NOT_IN_FILES = re.compile(r"[^A-Za-z0-9_]+")


def document(proposal: Proposal, *, table: str, cluster: str, now: datetime) -> str:
    """The text of the document."""
    topic = proposal.sample.topic.topic
    head = [f"Proposed by `kdi new {topic}` at {now.astimezone(UTC):{CLOCK}}; nothing was drained.", ""]
    return "\n".join(
        [
            *(f"# {line}".rstrip() for line in (*head, *_sample_lines(proposal), "", *_outcome_lines(proposal, table))),
            f"type: {TOPIC_TABLE}",
            "attributes:",
            *(f"  {line}".rstrip() for line in _attributes(proposal, table, cluster, now)),
            *_refined_lines(proposal, table),
            "",
        ]
    )


def refined_path(proposal: Proposal, table: str) -> str:
    """Path of the refined table in the document; empty if it describes none.

    Args:
        table: Path of the stream's table.
    """
    if proposal.changes is None or not proposal.changes.keys:
        return ""
    path = re.sub(r"^([^/]+/)?", "silver/", table)
    return path if path != table else f"{table}_now"


def _refined_lines(proposal: Proposal, table: str) -> Iterator[str]:
    changes, silver = proposal.changes, refined_path(proposal, table)
    if changes and silver:
        yield "---"
        yield from refined_document(changes, bronze=table, silver=silver)
    elif changes:
        yield "# The messages have no keys, so nothing here says which columns are the keys of a table of its rows."


def document_file(folder: Path, table: str, *, topic: str) -> Path:
    """The file for a stream's document.

    Raises:
        NothingProposed: The file exists, or a document above it hides the files below it.
    """
    if above := document_in(folder):
        types = {
            d.type for d in parse(above.read_text(encoding="utf-8", errors="replace"), display_path(above)).documents
        }
        if FOLDER_TYPE not in types:
            raise _occupied(topic, above, "ends the search for documents, so none below its folder would be loaded")
    own = folder / _NOT_IN_FILES.sub("_", table.rpartition("/")[2])
    if existing := document_in(own):
        raise _occupied(topic, existing, "exists already and stays as it is")
    return own / DOCUMENT_NAMES[0]


def write_document(folder: Path, file: Path, text: str, *, topic: str) -> None:
    """Write a new file.

    Raises:
        NothingProposed: The document would be a mistake beside the folder's others, or the file exists by now.
    """
    loaded = read_streams(folder, proposed=parse(text, display_path(file)))
    if mistake := next((m for m in loaded.mistakes if m.file == display_path(file)), None):
        why = f"the document for topic {topic} would have a mistake beside the existing documents: {mistake.text()}"
        run = f"kdi new {topic} --table another/path, or --stdout to see the document"
        raise NothingProposed(topic=topic, why=why, run=run)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise _occupied(topic, file, "exists already and stays as it is") from None


def outcome_in_words(proposal: Proposal) -> str:
    """What becomes of the sample, in one line."""
    outcome = proposal.outcome
    letters = outcome.letters.total()
    parts = [counted(outcome.rows, "row"), counted(letters, "dead letter")]
    if letters:
        parts[-1] += f" ({percent(letters, outcome.rows + letters)})"
    if outcome.tombstones:
        parts.append(counted(outcome.tombstones, "tombstone"))
    return ", ".join(parts)


def _occupied(topic: str, file: Path, why: str) -> NothingProposed:
    run = f"kdi new {topic} --stdout prints the document; put it where you want it"
    return NothingProposed(topic=topic, why=f"{display_path(file)} {why}.", run=run)


def _scalar(text: str) -> str:
    """Text as a YAML value, quoted if necessary."""
    return yaml.safe_dump({"a": text}, allow_unicode=True, width=2**20).removeprefix("a: ").rstrip("\n")


def _sample_lines(proposal: Proposal) -> Iterator[str]:
    sample = proposal.sample
    held = sum(1 for offsets in sample.topic.partitions.values() if offsets.earliest < offsets.end)
    times = [message.timestamp for message in sample.messages if message.timestamp]
    written = f", written {min(times):{CLOCK}} to {max(times):{CLOCK}}" if times else ""
    read = counted(held, "topic partition")
    yield f"Sampled: {counted(len(sample.messages), 'message')}, the oldest and the newest of {read}{written}"
    if sample.cut_short:
        yield f"  cut short: {sample.cut_short}"
    yield f"Keys: {keys_in_words(proposal)}"


def _outcome_lines(proposal: Proposal, table: str) -> Iterator[str]:
    yield f"Recognised: {proposal.recognised.what}"
    yield f"With this document the sample becomes {outcome_in_words(proposal)}"
    for (reason, where), count in proposal.outcome.letters.most_common():
        yield f"  {count:,} {reason}{f' in {where}' if where else ''}"
    silver = refined_path(proposal, table)
    yield f"Next: kdi check, kdi peek {table}, kdi drain {table}{f', kdi refine {silver}' if silver else ''}"


def _attributes(proposal: Proposal, table: str, cluster: str, now: datetime) -> Iterator[str]:
    recognised = proposal.recognised
    yield f"topic: {_scalar(proposal.sample.topic.topic)}"
    yield f"table: {_scalar(table)}  # below $KDI_LAKE; also the stream's name"
    yield f"cluster: {_scalar(cluster)}"
    yield from (f"# {line}" for line in recognised.advice)
    yield f"format: {recognised.written}"
    yield from _schema(proposal)
    if recognised.fields:
        yield "# These fields cannot be columns as they are."
        uses = {path: {"rename": use.name} if use.name else use.how for path, use in recognised.fields.items()}
        yield f"fields: {yaml.safe_dump(uses, default_flow_style=True, sort_keys=False, width=2**20).strip()}"
    if proposal.changes:
        yield "# Keys of deletes, where the source does not say what it deleted."
        yield "columns: {message_key: CAST(kafka.key AS STRING)}"
        if not proposal.changes.wrapped:
            yield "# A column that the source's table gains is a column here."
            yield "contract: {new_columns: evolve}"
    if proposal.hidden:
        yield "# The table's own `date` replaces the record's, which is kept as `message_date`."
        yield f"columns: {{message_date: {_scalar(proposal.hidden)}}}"
    yield from _date(proposal)
    window = proposal.window
    ahead = f"{window.ahead_days} day{'' if window.ahead_days == 1 else 's'}"
    yield "# From the oldest date of the sample: messages before it are dead letters. `start: auto` takes those from"
    yield "# 2020 on, and Dagster's partitions begin with the table's oldest date."
    yield f"date_window: {{start: {window.first}, ahead: {ahead}}}"
    midnight = f"{now.astimezone(UTC):%Y-%m-%d}T00:00:00Z"
    yield f"start: earliest  # everything that Kafka holds; or latest, or a timestamp: {midnight}"


def _schema(proposal: Proposal) -> Iterator[str]:
    record = proposal.recognised.record
    if record is None or proposal.recognised.format not in ("json", "csv"):
        return
    if proposal.changes and proposal.changes.wrapped:
        yield "# The columns and types are those of the newest message's schema."
    elif proposal.recognised.format == "json":
        yield "# After each field: the share of messages in which it is present and not null. For fields at 100%,"
        yield "# consider `NOT NULL` after the type: messages without the field then become dead letters."
    yield "schema: |"
    yield from (f"  {line}" for line in ddl_lines(record, messages=proposal.decoded))
    if omitted := list(left_out(record)):
        yield f"# Left out of the schema{f', of {len(omitted):,}' if len(omitted) > SHOWN_NAMES else ''}:"
        yield from (f"#   {name}: {why}" for name, why in omitted[:SHOWN_NAMES])


def _date(proposal: Proposal) -> Iterator[str]:
    choice, dates = proposal.date, proposal.outcome.dates if proposal.decoded else None
    if choice.of:
        yield f"# The date is that of {_candidate_text(choice.of, proposal)}"
        if KAFKA in choice.sql:
            yield "# Messages without it have the date on which they were written to Kafka."
    else:
        yield "# No field says when the event happened: the date is that on which the message was written to Kafka."
    if dates:
        yield f"# Dates of the sample: {_from_to(min(dates), max(dates))}."
    yield f"date: {_scalar(choice.sql)}"
    if choice.of:
        yield f"# Another candidate: {KAFKA}, when the message was written to Kafka"
    for other in choice.others[:SHOWN_DATES]:
        yield f"# Another candidate: {other.sql}, {_candidate_text(other, proposal)}"


def _candidate_text(candidate: Candidate, proposal: Proposal) -> str:
    field = ".".join(candidate.path)
    if candidate.dates is None:
        return f"`{field}`: {candidate.what}, by its schema"
    part, dates = percent(candidate.dated, proposal.decoded), _from_to(*candidate.dates)
    return f"`{field}`: {candidate.what}, in {part} of the messages, {dates}"


def _from_to(oldest: date, newest: date) -> str:
    return f"{oldest}" if newest == oldest else f"{oldest} to {newest}"


def ddl_lines(record: Struct, *, messages: int) -> list[str]:
    """The record as DDL, a field on each line, with the statistics of ``messages`` messages as comments."""
    lines = list(_ddl_fields(record, "", messages, separator=" "))
    width = min(WIDEST, max((len(line) for line, _ in lines), default=0))
    return [f"{line:<{width}}  -- {comment}" if comment else line for line, comment in lines]


def left_out(record: Struct, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths of fields that are not declared, with the reason."""
    for name, why in record.left_out.items():
        # A line break in a name would end the comment.
        yield f"{path}{name}" if name.isprintable() and name else json.dumps(f"{path}{name}"), why
    for name, declared in record.fields.items():
        inner, steps = declared, ""
        while isinstance(inner, Array):
            inner, steps = inner.element, f"{steps}[]"
        if isinstance(inner, Struct):
            yield from left_out(inner, f"{path}{name}{steps}.")


def _ddl_fields(record: Struct, indent: str, messages: int, *, separator: str) -> Iterator[tuple[str, str]]:
    """Lines of DDL, each with its comment."""
    last = len(record.fields) - 1
    for n, (name, declared) in enumerate(record.fields.items()):
        stats, comma = record.stats.get(name), "" if n == last else ","
        comment = (
            "; ".join([percent(stats.in_messages, messages), *remarks(declared, stats, messages)]) if stats else ""
        )
        inner, opened, closed = declared, f"{indent}{ddl_name(name)}{separator}", ""
        while isinstance(inner, Array):
            inner, opened, closed = inner.element, f"{opened}array<", f"{closed}>"
        if isinstance(inner, str):
            yield f"{opened}{inner}{closed}{comma}", comment
            continue
        yield f"{opened}struct<", comment
        yield from _ddl_fields(inner, f"{indent}  ", messages, separator=": ")
        yield f"{indent}>{closed}{comma}", ""
