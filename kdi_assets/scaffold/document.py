"""A proposal as a YAML document with comments: what a person needs to agree, or to decide otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

import yaml

from kdi_assets.config.loader import TOPIC_TABLE
from kdi_assets.scaffold.date_candidates import KAFKA, Candidate
from kdi_assets.scaffold.ddl_text import ddl_lines, left_out, share
from kdi_assets.scaffold.propose import Proposal
from kdi_assets.wording import counted

SHOWN_NAMES, SHOWN_DATES = 20, 5
CLOCK = "%Y-%m-%dT%H:%M:%SZ"


def document(proposal: Proposal, *, table: str, cluster: str, now: datetime) -> str:
    """The text of a document."""
    topic = proposal.sample.topic.topic
    head = [f"Proposed by `kdi new {topic}` at {now.astimezone(UTC):{CLOCK}}; nothing was drained.", ""]
    return "\n".join(
        [
            *(f"# {line}".rstrip() for line in (*head, *_sampled(proposal), "", *_outcome(proposal, table))),
            f"type: {TOPIC_TABLE}",
            "attributes:",
            *(f"  {line}".rstrip() for line in _attributes(proposal, table, cluster, now)),
            "",
        ]
    )


def scalar(text: str) -> str:
    """Text as a YAML value, in quotes where it would be something else without."""
    return yaml.safe_dump({"a": text}, allow_unicode=True, width=2**20).removeprefix("a: ").rstrip("\n")


def outcome_in_words(proposal: Proposal) -> str:
    """What would become of the sample, in one line."""
    found = proposal.outcome
    letters = found.letters.total()
    parts = [counted(found.rows, "row"), counted(letters, "dead letter")]
    if letters:
        parts[-1] += f" ({share(letters, found.rows + letters)})"
    if found.tombstones:
        parts.append(counted(found.tombstones, "tombstone"))
    return ", ".join(parts)


def _sampled(proposal: Proposal) -> Iterator[str]:
    sample = proposal.sample
    held = sum(1 for offsets in sample.topic.partitions.values() if offsets.earliest < offsets.end)
    times = [message.timestamp for message in sample.messages if message.timestamp]
    written = f", written {min(times):{CLOCK}} to {max(times):{CLOCK}}" if times else ""
    read = counted(held, "topic partition")
    yield f"Sampled: {counted(len(sample.messages), 'message')}, the oldest and the newest of {read}{written}"
    if sample.cut_short:
        yield f"  cut short: {sample.cut_short}"


def _outcome(proposal: Proposal, table: str) -> Iterator[str]:
    found = proposal.outcome
    yield f"Recognised: {proposal.recognised.what}"
    yield f"Under this document the sample is {outcome_in_words(proposal)}"
    for (reason, where), count in found.letters.most_common():
        yield f"  {count:,} {reason}{f' in {where}' if where else ''}"
    yield f"Next: kdi check, kdi peek {table}, kdi drain {table}"


def _attributes(proposal: Proposal, table: str, cluster: str, now: datetime) -> Iterator[str]:
    found = proposal.recognised
    yield f"topic: {scalar(proposal.sample.topic.topic)}"
    yield f"table: {scalar(table)}  # below $KDI_LAKE; it names the stream"
    yield f"cluster: {scalar(cluster)}"
    yield from (f"# {line}" for line in found.advice)
    yield f"format: {found.written}"
    yield from _schema(proposal)
    if proposal.hidden:
        yield "# The table's own `date` stands in the place of the record's, which is kept here."
        yield f"columns: {{message_date: {scalar(proposal.hidden)}}}"
    yield from _date(proposal)
    window = proposal.window
    ahead = f"{window.ahead_days} day{'' if window.ahead_days == 1 else 's'}"
    yield f"date_window: {{start: {window.start}, ahead: {ahead}}}  # a message of another date is a dead letter"
    moment = f"{now.astimezone(UTC):%Y-%m-%d}T00:00:00Z"
    yield f"start: earliest  # all that Kafka has; or latest, or a moment: {moment}"


def _schema(proposal: Proposal) -> Iterator[str]:
    record = proposal.recognised.record
    if record is None or proposal.recognised.format not in ("json", "csv"):
        return
    if proposal.recognised.format == "json":
        yield "# Behind each field: the share of messages in which it is there and not null. For fields at 100%, think"
        yield "# of `NOT NULL` behind the type, which makes dead letters of messages without them."
    yield "schema: |"
    yield from (f"  {line}" for line in ddl_lines(record, messages=proposal.decoded))
    if omitted := list(left_out(record)):
        yield f"# Left out of the schema{f', of {len(omitted):,}' if len(omitted) > SHOWN_NAMES else ''}:"
        yield from (f"#   {name}: {why}" for name, why in omitted[:SHOWN_NAMES])


def _date(proposal: Proposal) -> Iterator[str]:
    choice, dates = proposal.date, proposal.outcome.dates if proposal.decoded else None
    if choice.of:
        yield f"# The date is that of {_of(choice.of, proposal)}"
        if KAFKA in choice.sql:
            yield "# Where it gives none, the date is that on which the message was written to Kafka."
    else:
        yield "# Messages do not tell when their event was: the date is that on which they were written to Kafka."
    if dates:
        yield f"# Dates of the sample: {_from_to(min(dates), max(dates))}."
    yield f"date: {scalar(choice.sql)}"
    if choice.of:
        yield f"# Another candidate: {KAFKA}, when the message was written to Kafka"
    for other in choice.others[:SHOWN_DATES]:
        yield f"# Another candidate: {other.sql}, {_of(other, proposal)}"


def _of(candidate: Candidate, proposal: Proposal) -> str:
    field = ".".join(candidate.path)
    if candidate.dates is None:
        return f"`{field}`: {candidate.what}, by its schema"
    part, dates = share(candidate.given, proposal.decoded), _from_to(*candidate.dates)
    return f"`{field}`: {candidate.what}, in {part} of the messages, {dates}"


def _from_to(oldest: date, newest: date) -> str:
    return f"{oldest}" if newest == oldest else f"{oldest} to {newest}"
