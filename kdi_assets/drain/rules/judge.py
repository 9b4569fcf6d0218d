"""One verdict for every message, with the reason of those that are condemned, in the pass that writes the rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.contract import unknown_rules, with_unknown
from kdi_assets.drain.rules.expectations import UNMET, expectation_rules, with_unmet
from kdi_assets.drain.rules.explode import ITEMS, Elements, apart, elements_of, in_rows
from kdi_assets.drain.rules.mask import letters_hold, payload, with_secrets
from kdi_assets.drain.rules.records import DEAD_LETTER, FILTERED, ROW, VERDICT, decode
from kdi_assets.drain.rules.shape import evaluate, table_columns
from kdi_assets.drain.rules.tally import Counts, PassTally
from kdi_assets.drain.rules.verdict import ELSEWHERE, TOMBSTONE_RULE, VERDICTS, route_sql, row_rules, verdict_sql
from kdi_assets.formats.decoder import DECODED, FRAME, MISFITS, PATHS, UNKNOWN, VALUE, paths_of
from kdi_assets.formats.rules import field_told_by, first_of, literal, reason_told_by
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PLACE = ("topic", "partition", "offset", "timestamp", "timestamp_type")
_RULE = "_kdi_rule"
_IS_ROW = "_kdi_is_row"


def judge(messages: DataFrame, stream: Stream, decoder: StreamDecoder, *, now: datetime, tally: PassTally) -> DataFrame:
    """Decode, shape, judge and count; keep the rows.

    Args:
        messages: As ``kafka_frame.read_ranges`` gives them.
        now: The moment that the plan pinned for the date window.
        tally: Counts the messages of the first action over the result, and no other.

    Returns:
        The table's columns, one row per message that became one, or per element. Lazy: nothing runs here.
    """
    from pyspark.sql import functions as F

    elements = elements_of(stream, decoder.record, messages.sparkSession)
    columns = table_columns(stream, decoder.record, elements)
    letter = ", ".join(f"{literal(column)}, {sql}" for column, sql in _letter(stream, decoder.record).items())
    is_row = tally.counted(
        [
            VERDICT,
            "kafka.partition",
            "kafka.offset",
            "unix_micros(kafka.timestamp)",
            f"size({ITEMS})" if elements else "1",
            f"coalesce(length({VALUE}), 0) + coalesce(length(kafka.key), 0)",
            decoder.unknown_schema,
            PATHS,
            paths_of(MISFITS),
            UNMET,
            f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN named_struct({letter}) END",
        ]
    )
    # What counts stands beside the columns and not in the filter: Spark would take a filter down through what judges,
    # and evaluate that twice. It leaves those columns alone that have no use where the filter lets nothing pass.
    judged = _with_reasons(messages, stream, decoder, now, elements)
    counted = judged.select(*in_rows(columns, elements, where=f"{VERDICT} = {ROW}"), is_row.alias(_IS_ROW))
    return apart(counted.where(F.col(_IS_ROW)), columns, elements)


def to_dead_letters(messages: DataFrame, stream: Stream, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """The messages that ``judge`` condemned, with the reason.

    Args:
        messages: As ``judge`` takes them.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, key: binary,
        value: binary, headers: array<struct<key: string, value: binary>>, schema_id: int, reason: string,
        field: string, withheld: boolean``: the last says whether they lack a part of the message. Lazy.
    """
    from pyspark.sql import functions as F

    elements = elements_of(stream, decoder.record, messages.sparkSession)
    told = _with_reasons(messages, stream, decoder, now, elements).where(f"{VERDICT} = {DEAD_LETTER}")
    return told.select(*(F.expr(sql).alias(column) for column, sql in _letter(stream, decoder.record).items()))


def letters_of(
    messages: DataFrame, stream: Stream, decoder: StreamDecoder, counts: Counts, *, now: datetime
) -> DataFrame:
    """The dead letters of a pass, as ``to_dead_letters`` gives them: kept ones, or if too many, judged once more.

    Args:
        messages: Those that were judged.
        counts: Of that pass.
    """
    return to_dead_letters(messages, stream, decoder, now=now) if counts.letters is None else counts.letters


def verdicts(messages: DataFrame, stream: Stream, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """The verdict of ``judge`` on every message.

    Args:
        messages: Those that were judged.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, outcome: string,
        reason: string, field: string``; the outcome is one of ``VERDICTS`` or ``elsewhere``, and a dead letter has a
        reason. Lazy.
    """
    from pyspark.sql import functions as F

    named = f"get(array({', '.join(map(literal, VERDICTS))}), {VERDICT})"
    if elsewhere := route_sql(stream).elsewhere:
        named = f"CASE WHEN {VERDICT} = {FILTERED} AND {elsewhere} THEN {literal(ELSEWHERE)} ELSE {named} END"
    elements = elements_of(stream, decoder.record, messages.sparkSession)
    told = _with_reasons(messages, stream, decoder, now, elements).withColumn("outcome", F.expr(named))
    return told.select(*(F.expr(f"kafka.{c}") for c in _PLACE), "outcome", "reason", "field")


def _letter(stream: Stream, record: StructType) -> dict[str, str]:
    """Column of a dead letter to Spark SQL over what ``_with_reasons`` gives."""
    # A key often repeats what is masked in the value, and so may a header.
    whole = letters_hold(stream, record) == "keep"
    kept = "{}" if whole else "CASE WHEN false THEN {} END"
    return {
        **{column: f"kafka.{column}" for column in _PLACE},
        "key": kept.format("kafka.key"),
        "value": payload(VALUE, stream, record),
        "headers": kept.format("kafka.headers"),
        "schema_id": f"try_cast({FRAME}.schema_id AS INT)",
        "reason": "reason",
        "field": "field",
        "withheld": str(not whole).lower(),
    }


def _with_reasons(
    messages: DataFrame, stream: Stream, decoder: StreamDecoder, now: datetime, elements: Elements | None
) -> DataFrame:
    """Judge, and say of each message that is condemned why: ``reason`` and ``field``."""
    from pyspark.sql import functions as F

    decoding = [TOMBSTONE_RULE, *decoder.rules()]
    of_rows = [*row_rules(stream, now), *unknown_rules(stream, decoder), *expectation_rules(stream)]
    shaping = [*route_sql(stream).rules, *of_rows]
    # The number of the rule first: the predicates are long, and Spark compiles them as often as they stand there.
    first = f"CASE WHEN NOT {DECODED} THEN {first_of(decoding)} ELSE {len(decoding)} + {first_of(shaping)} END"
    rules = [*decoding, *shaping]
    judged = _judged(messages, stream, decoder, now, elements)
    numbered = judged.withColumn(_RULE, F.expr(f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN {first} END"))
    reason, field_ = reason_told_by(_RULE, rules), field_told_by(_RULE, rules)
    return numbered.withColumns({"reason": F.expr(reason), "field": F.expr(field_)})


def field_values(
    messages: DataFrame, stream: Stream, decoder: StreamDecoder, column: str, *, now: datetime
) -> DataFrame:
    """``_kdi_unknown`` or ``_kdi_misfits`` of the messages that would be rows and have such fields. Lazy."""
    elements = elements_of(stream, decoder.record, messages.sparkSession)
    judged = _judged(messages, stream, decoder, now, elements, values=column == UNKNOWN)
    return judged.where(f"size({column}) > 0").select(column)


def _judged(
    messages: DataFrame,
    stream: Stream,
    decoder: StreamDecoder,
    now: datetime,
    elements: Elements | None,
    *,
    values: bool = False,
) -> DataFrame:
    from pyspark.sql import functions as F

    evaluated = with_secrets(evaluate(decode(messages, decoder), stream, elements), stream)
    judged = evaluated.withColumn(VERDICT, F.expr(verdict_sql(stream, now)))
    # In the order of the rules of `condemned`: whoever changes one alone tells letters of a reason that did not decide.
    judged = with_unknown(judged, stream, decoder, values=values)
    return with_unmet(judged, stream)
