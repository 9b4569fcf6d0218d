"""A proposal as a YAML document with comments: what a person needs to agree, or to decide otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime

import yaml

from kdi_assets.components.documents import LOADER
from kdi_assets.components.reading import TOPIC_TABLE
from kdi_assets.message_rules import DeadLetterLimit
from kdi_assets.proposal.advice import advice, what
from kdi_assets.proposal.dates import KAFKA, Candidate
from kdi_assets.proposal.ddl_text import ddl_lines, left_out, share
from kdi_assets.proposal.propose import NO_TIME, Proposal
from kdi_assets.sources.kafka_sample import moments
from kdi_assets.stream import DateWindow
from kdi_assets.wording import counted

SHOWN_PARTITIONS, SHOWN_NAMES, SHOWN_DATES = 16, 20, 5
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
    try:
        plain = yaml.load(f"a: {text}", LOADER) == {"a": text}  # noqa: S506
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def outcome_in_words(proposal: Proposal) -> str:
    """What would become of the sample, in one line."""
    found = proposal.outcome
    judged = found.rows + found.letters.total()
    parts = [f"{counted(found.rows, 'row')}", f"{counted(found.letters.total(), 'dead letter')}"]
    if found.letters:
        parts[-1] += f" ({share(found.letters.total(), judged)})"
    if found.tombstones:
        parts.append(counted(found.tombstones, "tombstone"))
    return ", ".join(parts)


def _sampled(proposal: Proposal) -> Iterator[str]:
    sample = proposal.sample
    count, times = len(sample.messages), moments(sample.messages)
    yield f"Sampled: {counted(count, 'message')}, the oldest and the newest of each topic partition"
    held = {tp: o for tp, o in sorted(sample.topic.partitions.items()) if o.earliest < o.end}
    for tp, offsets in list(held.items())[:SHOWN_PARTITIONS]:
        messages = sum(1 for message in sample.messages if message.topic_partition == tp)
        written = f", {times[tp][0]:{CLOCK}} to {times[tp][1]:{CLOCK}}" if tp in times else ""
        yield f"  {tp} [{offsets.earliest}, {offsets.end}): {messages:,}{written}"
    if len(held) > SHOWN_PARTITIONS:
        yield f"  and {counted(len(held) - SHOWN_PARTITIONS, 'topic partition')} more"
    if sample.passed_over:
        yield f"  {counted(sample.passed_over, 'topic partition')} passed over: there are more than messages to sample"
    if sample.cut_short:
        yield f"  cut short: {sample.cut_short}"


def _outcome(proposal: Proposal, table: str) -> Iterator[str]:
    found = proposal.outcome
    shares = [f"{count:,} {kind}" for kind, count in proposal.recognised.shares.most_common()]
    yield f"Recognised: {what(proposal.recognised)} (values: {', '.join(shares)})"
    yield f"Under this document the sample is {outcome_in_words(proposal)}"
    for (reason, where), count in found.letters.most_common():
        yield f"  {count:,} {reason}{f' in {where}' if where else ''}"
    if found.letters.total() > DeadLetterLimit().share * (found.rows + found.letters.total()):
        yield "  dead_letter_limit stops a drain of which so many messages are dead letters"
    if found.unjudged:
        yield f"  {counted(found.unjudged, 'message')} too large to be looked at here"
    yield f"Next: kdi check, kdi peek {table}, kdi drain {table}"


def _attributes(proposal: Proposal, table: str, cluster: str, now: datetime) -> Iterator[str]:
    found = proposal.recognised
    yield f"topic: {scalar(proposal.sample.topic.topic)}"
    yield f"table: {scalar(table)}  # below $KDI_LAKE; it names the stream"
    yield f"cluster: {scalar(cluster)}"
    for line in advice(found, proposal.registered):
        yield f"# {line}"
    yield f"format: {_format(proposal)}"
    if found.compression != "none":
        yield f"compression: {found.compression}"
    yield from _schema(proposal)
    yield from _columns(proposal)
    yield from _date(proposal)
    yield from _window(proposal.window)
    oldest = min((first for first, _ in moments(proposal.sample.messages).values()), default=None)
    since = f", from {oldest:{CLOCK}} on" if oldest else ""
    moment = f"{now.astimezone(UTC):%Y-%m-%d}T00:00:00Z"
    yield f"start: earliest  # all that Kafka has{since}; or latest, or a moment: {moment}"


def _format(proposal: Proposal) -> str:
    found = proposal.recognised
    if found.format == "csv":
        return f"{{csv: {{delimiter: {json.dumps(found.delimiter)}}}}}"
    if found.frames and proposal.registered and found.format != "bytes":
        message = f", message: {scalar(found.message)}" if found.message else ""
        return f"{{{found.format}: {{registry: {scalar(proposal.registered.registry)}{message}}}}}"
    return found.format


def _schema(proposal: Proposal) -> Iterator[str]:
    record = proposal.record
    if record is None or proposal.recognised.format not in ("json", "csv"):
        return
    if proposal.recognised.format == "json":
        yield "# Behind each field: the share of messages in which it is there and not null. For fields at 100%, think"
        yield "# of `NOT NULL` behind the type, which makes dead letters of messages without them."
    yield "schema: |"
    yield from (f"  {line}" for line in ddl_lines(record, messages=proposal.decoded))
    omitted = list(left_out(record))
    if omitted:
        yield "# Left out of the schema:"
        yield from (f"#   {name}: {why}" for name, why in omitted[:SHOWN_NAMES])
    if len(omitted) > SHOWN_NAMES:
        yield f"#   and {len(omitted) - SHOWN_NAMES:,} more"


def _columns(proposal: Proposal) -> Iterator[str]:
    if not proposal.columns:
        return
    if proposal.recognised.format != "bytes":
        yield "# The table's own `date` stands in the place of the record's, which is kept here."
    yield "columns:"
    yield from (f"  {path}: {scalar(sql)}" for path, sql in proposal.columns.items())


def _date(proposal: Proposal) -> Iterator[str]:
    choice, decoded = proposal.date, proposal.decoded
    if choice.of:
        yield f"# The date is that of {_of(choice.of, decoded)}"
        if KAFKA in choice.sql:
            yield "# Where it gives none, the date is that on which the message was written to Kafka."
    elif choice.sql == NO_TIME:
        yield "# Neither the messages nor Kafka say a time: the date is that of the drain."
    else:
        yield "# Messages do not tell when their event was: the date is that on which they were written to Kafka."
    if proposal.outcome.oldest:
        yield f"# Dates of the sample: {_from_to(proposal.outcome.oldest, proposal.outcome.newest)}."
    yield f"date: {scalar(choice.sql)}"
    others = [f"{c.sql}  {_of(c, decoded)}" for c in choice.others[:SHOWN_DATES]]
    if choice.of:
        others.append(f"{KAFKA}  when the message was written to Kafka")
    if others:
        yield "# Other candidates:"
        yield from (f"#   {other}" for other in others)


def _of(candidate: Candidate, decoded: int) -> str:
    field, dates = ".".join(candidate.path), _from_to(candidate.oldest, candidate.newest)
    return f"`{field}`: {candidate.what}, in {share(candidate.given, decoded)} of the messages, {dates}"


def _from_to(oldest: date, newest: date | None) -> str:
    return f"{oldest}" if newest in (None, oldest) else f"{oldest} to {newest}"


def _window(window: DateWindow) -> Iterator[str]:
    days = f"{window.ahead_days} day{'' if window.ahead_days == 1 else 's'}"
    yield f"date_window: {{start: {window.start}, ahead: {days}}}  # a message of another date is a dead letter"
