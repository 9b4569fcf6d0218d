"""From a sample to what a document should say, and what would become of the sample under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from kdi_assets.proposal.dates import KAFKA, Candidate, candidates, is_plausible
from kdi_assets.proposal.fit import Misfit, misfit
from kdi_assets.proposal.payload import Framed
from kdi_assets.proposal.recognise import Recognised, Record, as_bytes, recognise
from kdi_assets.proposal.registered import Registered, as_registered
from kdi_assets.proposal.seen import seen_in
from kdi_assets.proposal.types import DATE, Struct, ddl_name, record_of
from kdi_assets.sources.kafka_sample import Sample, Sampled
from kdi_assets.stream import DateWindow

NO_TIME = "current_date()"
"""The date where neither the messages nor Kafka have one."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would become of the sample.

    Attributes:
        letters: Dead letters by reason and field.
        unjudged: Messages that are too large to be looked at here.
        oldest: First date of the rows.
        newest: Last date of the rows.
    """

    rows: int
    letters: Counter[Misfit]
    tombstones: int
    unjudged: int = 0
    oldest: date | None = None
    newest: date | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a document should say.

    Attributes:
        record: What the DDL says, or of Avro the registry; ``None`` where the format has no fields.
        columns: Further columns, by their path.
        decoded: Messages whose fields were counted.
        registered: What a registry said of the messages' schemas; ``None`` if none was asked.
    """

    sample: Sample
    recognised: Recognised
    record: Struct | None
    date: DateChoice
    window: DateWindow
    outcome: Outcome
    decoded: int
    columns: Mapping[str, str] = field(default_factory=dict)
    registered: Registered | None = None


def propose(sample: Sample, *, now: datetime, ask: Callable[[Framed], Registered] | None = None) -> Proposal:
    """Say what a document for the sampled topic should say.

    Args:
        sample: With at least one message that has a value.
        now: Today's date ends the window.
        ask: Asks a registry for the schemas of frames.
    """
    with_value = [message for message in sample.messages if message.value is not None]
    values = [message.value or b"" for message in with_value]
    recognised = recognise(values)
    registered = ask(recognised.frames) if ask and recognised.frames else None
    if registered:
        recognised, registered = as_registered(values, recognised, registered)
    pairs = list(zip(with_value, recognised.records, strict=True))
    decoded = [(message, record) for message, record in pairs if isinstance(record, dict)]
    record = recognised.record
    if recognised.format == "json":
        record = record_of(seen_in(document for _, document in decoded))
        if not record.fields:
            recognised, record = as_bytes(recognised), None
            pairs = list(zip(with_value, recognised.records, strict=True))
            decoded = [(message, found) for message, found in pairs if isinstance(found, dict)]
    choice = _date(record, decoded, now)
    window = _window(choice, decoded, now)
    outcome = _outcome(sample, recognised, pairs, record, choice, window, now)
    columns = _columns(recognised, record, choice)
    return Proposal(sample, recognised, record, choice, window, outcome, len(decoded), columns, registered)


def _date(record: Struct | None, decoded: Sequence[tuple[Sampled, Record]], now: datetime) -> DateChoice:
    documents, written = [document for _, document in decoded], [message.timestamp for message, _ in decoded]
    found = candidates(record, documents, written, now=now) if record and documents else []
    kafka = KAFKA if any(w is not None and is_plausible(w.date(), now) for w in written) else NO_TIME
    best = next((candidate for candidate in found if candidate.worth >= 0), None)
    if best is None:
        return DateChoice(kafka, None, found)
    others = [candidate for candidate in found if candidate is not best]
    if any(best.moment(document) is None for document in documents) and kafka == KAFKA:
        return DateChoice(f"coalesce({best.sql}, {KAFKA})", best, others)
    return DateChoice(best.sql, best, others)


def date_of(message: Sampled, document: Record, choice: DateChoice, now: datetime) -> date | None:
    """The date that a message would have."""
    if choice.sql == NO_TIME:
        return now.date()
    moment = choice.of.moment(document) if choice.of else message.timestamp
    if moment is None and KAFKA in choice.sql:
        moment = message.timestamp
    return moment.astimezone(UTC).date() if moment else None


def _window(choice: DateChoice, decoded: Sequence[tuple[Sampled, Record]], now: datetime) -> DateWindow:
    """The usual window, as much longer as the plausible dates of the sample ask for."""
    usual, today = DateWindow(), now.date()
    dates = [day for message, document in decoded if (day := date_of(message, document, choice, now))]
    plausible = [day for day in dates if is_plausible(day, now)] or [today]
    start = min(usual.start, date(min(plausible).year, 1, 1))
    ahead = usual.ahead_days
    if max(plausible) > usual.last(now):
        ahead += (max(plausible) - today) // timedelta(days=1)
    return DateWindow(start, ahead)


def _outcome(
    sample: Sample,
    recognised: Recognised,
    pairs: Sequence[tuple[Sampled, Record | str | None]],
    record: Struct | None,
    choice: DateChoice,
    window: DateWindow,
    now: datetime,
) -> Outcome:
    declared = record if recognised.format == "json" else None
    letters: Counter[Misfit] = Counter()
    dates: list[date] = []
    for message, found in pairs:
        if found is None:
            continue
        day = date_of(message, found, choice, now) if isinstance(found, dict) else None
        unfit = misfit(found, declared) if declared and isinstance(found, dict) else None
        why = unfit or _condemned(found, day, window, now)
        if why:
            letters[why] += 1
        elif day:
            dates.append(day)
    return Outcome(
        rows=len(dates),
        letters=letters,
        tombstones=len(sample.messages) - len(pairs),
        unjudged=sum(1 for _, found in pairs if found is None),
        oldest=min(dates, default=None),
        newest=max(dates, default=None),
    )


def _condemned(found: Record | str, day: date | None, window: DateWindow, now: datetime) -> Misfit | None:
    """Why a message has no record, or no date that is allowed."""
    if isinstance(found, str):
        return found, ""
    if day is None:
        return "no_date", "date"
    return None if window.start <= day <= window.last(now) else ("date_outside_window", "date")


def _columns(recognised: Recognised, record: Struct | None, choice: DateChoice) -> dict[str, str]:
    """Columns that keep what would else be lost, or out of reach."""
    if recognised.frames and recognised.format == "bytes":
        framed = {"schema_id": "CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS bigint)"}
        if recognised.looks == "framed_json":
            framed["document"] = "try_validate_utf8(CAST(substring(value, 6) AS STRING))"
        return framed
    # The table's own `date` stands where the record's would.
    own = next((name for name in record.fields if name.lower() == "date"), None) if record else None
    if record is None or own is None or (record.fields[own] == DATE and choice.sql == ddl_name(own)):
        return {}
    taken = {name.lower() for name in record.fields}
    free = next(name for n in range(1, len(taken) + 2) if (name := "message_date" + "_" * (n - 1)) not in taken)
    return {free: ddl_name(own)}
