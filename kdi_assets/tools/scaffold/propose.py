"""From a topic's sample to the contents of a document, and what becomes of the sample with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from kdi_assets.documents.model.stream import Cluster, DateWindow
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.messages.kafka.sample import SampledMessage, TopicSample, sample
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.tools.scaffold.changes import Changes, changes_of
from kdi_assets.tools.scaffold.date_candidates import KAFKA, Candidate, candidates, is_plausible
from kdi_assets.tools.scaffold.errors import NothingProposed
from kdi_assets.tools.scaffold.field_stats import JsonRecord, Misfit
from kdi_assets.tools.scaffold.infer_types import DATE, Struct, ddl_name, misfit
from kdi_assets.tools.scaffold.recognise_format import Ask, Decoded, Recognised, recognise


@dataclass(frozen=True, slots=True)
class DateChoice:
    """The expression for the date.

    Attributes:
        sql: Spark SQL.
        of: The candidate in the expression; ``None`` if the date is that of Kafka's timestamp.
        others: The other candidates, the best first.
    """

    sql: str
    of: Candidate | None
    others: Sequence[Candidate] = ()

    def date(self, message: SampledMessage, record: JsonRecord) -> date | None:
        """The date of a message by this expression."""
        moment = self.of.moment(record) if self.of else None
        if moment is None and KAFKA in self.sql:
            moment = message.timestamp
        return moment.astimezone(UTC).date() if moment else None


@dataclass(slots=True)
class SampleOutcome:
    """What becomes of the sample.

    Attributes:
        letters: Number of dead letters by reason and field.
        dates: Number of rows by date.
    """

    letters: Counter[Misfit] = field(default_factory=Counter)
    tombstones: int = 0
    dates: Counter[date] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return self.dates.total()


@dataclass(frozen=True, slots=True)
class Proposal:
    """The contents of a document.

    Attributes:
        hidden: Spark SQL of a field that the table's own ``date`` would hide; empty if there is none.
        decoded: Number of messages whose fields were read; 0 if a registry describes them.
        changes: If the messages are a database's changes.
    """

    sample: TopicSample
    recognised: Recognised
    date: DateChoice
    window: DateWindow
    outcome: SampleOutcome
    decoded: int
    hidden: str
    changes: Changes | None = None


def sample_topic(cluster: Cluster, topic: str, *, count: int) -> TopicSample:
    """Sample a topic.

    Returns:
        A sample with at least one message that has a value.

    Raises:
        NothingProposed: The topic is missing, empty, or holds only tombstones.
        BrokerUnreachable, LeaderMissing: A retry can help.
        AccessRefused: The brokers refuse access to the cluster or the topic.
    """
    try:
        found = sample(cluster, read_topic(cluster, topic), count=count)
    except TopicMissing as missing:
        why = missing.message_parts()[0]
        raise NothingProposed(topic=topic, why=why, run="kdi new with a topic that you may read") from missing
    if all(message.value is None for message in found.messages):
        tombstones = f"has only tombstones, {len(found.messages):,} in the sample"
        detail = tombstones if found.messages else "has no committed message"
        why = f"topic {topic!r} of Kafka cluster {cluster.name} {detail}: a schema needs messages with values."
        run = "the same command after its producer has published; or write the document by hand (docs/documents.md)"
        raise NothingProposed(topic=topic, why=why, run=run)
    return found


def propose(topic_sample: TopicSample, *, now: datetime, ask: Ask | None = None) -> Proposal:
    """Propose the contents of a document.

    Args:
        topic_sample: A sample with at least one message that has a value.
        now: The date window ends after this date.
        ask: Asks a registry for the schemas of frames.
    """
    messages = [message for message in topic_sample.messages if message.value is not None]
    recognised = recognise([message.value or b"" for message in messages], ask)
    changes = changes_of(messages, recognised.records) if recognised.written == "json" else None
    if changes:
        what = f"Debezium's changes of a table of {changes.connector}, as {recognised.what}"
        recognised = replace(recognised, record=changes.record, what=what)
    read = list(zip(messages, recognised.records, strict=True))
    has_fields = recognised.format in ("json", "csv", "text")
    decoded = [(message, record) for message, record in read if has_fields and isinstance(record, dict)]
    choice = _date(changes.times if changes else recognised.record, decoded, now)
    window = _window([day for message, record in decoded if (day := choice.date(message, record))], now)
    outcome = _outcome(read, recognised, choice, window, now)
    outcome.tombstones = len(topic_sample.messages) - len(messages)
    hidden = _hidden(recognised, choice)
    return Proposal(topic_sample, recognised, choice, window, outcome, len(decoded), hidden, changes)


def _date(declared: Struct | None, decoded: Sequence[tuple[SampledMessage, JsonRecord]], now: datetime) -> DateChoice:
    records, written = [record for _, record in decoded], [message.timestamp for message, _ in decoded]
    found = candidates(declared, records, written, now=now) if declared else []
    if not found or found[0].score < 0:
        return DateChoice(KAFKA, None, found)
    best, *others = found
    if not records or any(best.moment(record) is None for record in records):
        return DateChoice(f"coalesce({best.sql}, {KAFKA})", best, others)
    return DateChoice(best.sql, best, others)


def _window(dates: Sequence[date], now: datetime) -> DateWindow:
    """The plausible dates of the sample, and the default days ahead: Dagster shows each date before as missing."""
    default, today = DateWindow(), now.date()
    plausible = [day for day in dates if is_plausible(day, now)] or [today]
    ahead = max(default.ahead_days, (max(plausible) - today).days + 1)
    return DateWindow(min(plausible), ahead)


def _outcome(
    read: Sequence[tuple[SampledMessage, Decoded]],
    recognised: Recognised,
    choice: DateChoice,
    window: DateWindow,
    now: datetime,
) -> SampleOutcome:
    outcome = SampleOutcome()
    declared = recognised.record if recognised.format == "json" else None
    for message, record in read:
        why = record if isinstance(record, tuple) else misfit(record, declared) if declared else None
        day = choice.date(message, record) if isinstance(record, dict) else None
        if why is None and day and window.first <= day <= window.last(now):
            outcome.dates[day] += 1
        else:
            outcome.letters[why or ("date_outside_window" if day else "no_date", "date")] += 1
    return outcome


def _hidden(recognised: Recognised, choice: DateChoice) -> str:
    """Spark SQL of a field ``date`` that the table's own would hide; empty if there is none, or both are equal."""
    fields = recognised.record.fields if recognised.record else {}
    own = next((name for name in fields if name.lower() == "date"), None)
    return "" if own is None or (fields[own] == DATE and choice.sql == ddl_name(own)) else ddl_name(own)
