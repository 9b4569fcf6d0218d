"""From a sample to what a document should say, and what would become of the sample under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from kdi_assets.scaffold.date_candidates import KAFKA, Candidate, candidates, is_plausible
from kdi_assets.scaffold.infer_types import DATE, ddl_name, misfit
from kdi_assets.scaffold.json_text import JsonRecord, Misfit
from kdi_assets.scaffold.recognise_format import Ask, Read, Recognised, recognise
from kdi_assets.sources.kafka.sample import Sampled, TopicSample
from kdi_assets.stream.stream import DateWindow


@dataclass(frozen=True, slots=True)
class DateChoice:
    """The expression for the date.

    Attributes:
        sql: Spark SQL.
        of: The candidate that it is made of; ``None``: the time that Kafka has.
        others: The other candidates, the best first.
    """

    sql: str
    of: Candidate | None
    others: Sequence[Candidate] = ()

    def date(self, message: Sampled, record: JsonRecord) -> date | None:
        """The date that a message would have."""
        moment = self.of.moment(record) if self.of else None
        if moment is None and KAFKA in self.sql:
            moment = message.timestamp
        return moment.astimezone(UTC).date() if moment else None


@dataclass(slots=True)
class SampleOutcome:
    """What would become of the sample.

    Attributes:
        letters: Dead letters by reason and field.
        dates: How many rows have each date.
    """

    letters: Counter[Misfit] = field(default_factory=Counter)
    tombstones: int = 0
    dates: Counter[date] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return self.dates.total()


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a document should say.

    Attributes:
        hidden: Spark SQL of a field that the table's own date would hide; empty if there is none.
        decoded: Messages whose fields were looked at; none where a registry says what they are.
    """

    sample: TopicSample
    recognised: Recognised
    date: DateChoice
    window: DateWindow
    outcome: SampleOutcome
    decoded: int
    hidden: str


def propose(sample: TopicSample, *, now: datetime, ask: Ask | None = None) -> Proposal:
    """Say what a document for the sampled topic should say.

    Args:
        sample: With at least one message that has a value.
        now: Today's date ends the window.
        ask: Asks a registry for the schemas of frames.
    """
    messages = [message for message in sample.messages if message.value is not None]
    recognised = recognise([message.value or b"" for message in messages], ask)
    read = list(zip(messages, recognised.records, strict=True))
    looked_at = recognised.format in ("json", "csv", "text")
    decoded = [(message, record) for message, record in read if looked_at and isinstance(record, dict)]
    choice = _date(recognised, decoded, now)
    window = _window([day for message, record in decoded if (day := choice.date(message, record))], now)
    outcome = _outcome(read, recognised, choice, window, now)
    outcome.tombstones = len(sample.messages) - len(messages)
    return Proposal(sample, recognised, choice, window, outcome, len(decoded), _hidden(recognised, choice))


def _date(recognised: Recognised, decoded: Sequence[tuple[Sampled, JsonRecord]], now: datetime) -> DateChoice:
    records, written = [record for _, record in decoded], [message.timestamp for message, _ in decoded]
    declared = recognised.record
    found = candidates(declared, records, written, now=now) if declared else []
    if not found or found[0].worth < 0:
        return DateChoice(KAFKA, None, found)
    best, *others = found
    if not records or any(best.moment(record) is None for record in records):
        return DateChoice(f"coalesce({best.sql}, {KAFKA})", best, others)
    return DateChoice(best.sql, best, others)


def _window(dates: Sequence[date], now: datetime) -> DateWindow:
    """The usual window, as much longer as the plausible dates of the sample ask for."""
    usual, today = DateWindow(), now.date()
    plausible = [day for day in dates if is_plausible(day, now)] or [today]
    ahead = max(usual.ahead_days, (max(plausible) - today).days + 1)
    return DateWindow(min(usual.start, date(min(plausible).year, 1, 1)), ahead)


def _outcome(
    read: Sequence[tuple[Sampled, Read]], recognised: Recognised, choice: DateChoice, window: DateWindow, now: datetime
) -> SampleOutcome:
    outcome = SampleOutcome()
    declared = recognised.record if recognised.format == "json" else None
    for message, record in read:
        why = record if isinstance(record, tuple) else misfit(record, declared) if declared else None
        day = choice.date(message, record) if isinstance(record, dict) else None
        if why is None and day and window.start <= day <= window.last(now):
            outcome.dates[day] += 1
        else:
            outcome.letters[why or ("date_outside_window" if day else "no_date", "date")] += 1
    return outcome


def _hidden(recognised: Recognised, choice: DateChoice) -> str:
    """Spark SQL of a field called ``date``, where the table's own stands; empty if there is none, or it is the same."""
    fields = recognised.record.fields if recognised.record else {}
    own = next((name for name in fields if name.lower() == "date"), None)
    return "" if own is None or (fields[own] == DATE and choice.sql == ddl_name(own)) else ddl_name(own)
