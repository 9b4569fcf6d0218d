"""One verdict for every message, counted in the pass that writes the rows; reasons in a second pass, where needed."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.contract import (
    contract_aggregates,
    contract_columns,
    fields_counted,
    unknown_rules,
    with_unknown,
)
from kdi_assets.drain.expectations import (
    expectation_rules,
    unmet_aggregates,
    unmet_columns,
    unmet_counted,
    with_unmet,
)
from kdi_assets.drain.explode import ROW_COUNT, Elements, apart, elements_of, in_rows
from kdi_assets.drain.masking import letters_hold, payload, with_secrets
from kdi_assets.drain.records import DEAD_LETTER, FILTERED, OFFSET, PARTITION, ROW, TOMBSTONE, VERDICT, decode
from kdi_assets.drain.shape import evaluate, table_columns
from kdi_assets.drain.verdict import ELSEWHERE, TOMBSTONE_RULE, VERDICTS, Counts, route_sql, row_rules, verdict_sql
from kdi_assets.formats.catalyst import bloom_filter, might_contain
from kdi_assets.formats.decoder import DECODED, FRAME, MISFITS, UNKNOWN, VALUE
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.formats.rules import field_told_by, first_of, literal, reason_told_by
from kdi_assets.ledger.freshness import BUCKETS, bucket_sql
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

_VERDICTS = len(VERDICTS)
_PLACE = ("topic", "partition", "offset", "timestamp", "timestamp_type")
_AGE, _BYTES = "_kdi_age", "_kdi_bytes"
_UNKNOWN_SCHEMA = "_kdi_unknown_schema"
_RULE = "_kdi_rule"
_DECODED_AGAIN = 10_000
"""So few messages are decoded again sooner than Spark has a Bloom filter ready that most of them do not pass."""
_BLOOM_ITEMS, _BLOOM_BITS = 20_000, 1 << 18
"""Of many more dead letters than that the second pass looks at every message, as it would without the filter."""


def judge(
    messages: DataFrame,
    stream: Stream,
    decoder: StreamDecoder,
    *,
    now: datetime,
    topic_partitions: int,
    counts: Observation,
) -> DataFrame:
    """Decode, shape and judge; keep the rows.

    Args:
        messages: As ``kafka_frame.read_ranges`` gives them.
        now: The moment that the plan pinned for the date window.
        topic_partitions: How many are read; sizes the count by topic partition.
        counts: Holds what ``counted`` reads after the first action over the result.

    Returns:
        The table's columns, one row per message that became one, or per element. Lazy: nothing runs here.
    """
    from pyspark.sql import functions as F

    elements = elements_of(stream, decoder.record, messages.sparkSession)
    columns = table_columns(stream, decoder.record, elements)
    judged = _judged(messages, stream, decoder, now, elements).select(
        *in_rows(columns, elements, where=f"{VERDICT} = {ROW}"),
        VERDICT,
        *unmet_columns(stream),
        *(F.expr(sql).alias(column) for column, sql in contract_columns(stream, decoder).items()),
        F.expr("kafka.partition").alias(PARTITION),
        F.expr("kafka.offset").alias(OFFSET),
        F.expr(bucket_sql("kafka.timestamp", now=now)).alias(_AGE),
        F.expr(f"coalesce(length({VALUE}), 0) + coalesce(length(kafka.key), 0)").alias(_BYTES),
        F.expr(decoder.unknown_schema).alias(_UNKNOWN_SCHEMA),
    )
    # Observe before anything filters: it is a barrier, so the record is parsed once (else once per use). Nothing above
    # may sort or sample, or each row would count twice.
    aggregates = _aggregates(messages.sparkSession, stream, decoder, topic_partitions, elements)
    return apart(judged.observe(counts, *aggregates).where(F.col(VERDICT) == ROW), columns, elements)


def condemned(messages: DataFrame, stream: Stream, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """The messages that ``judge`` condemned, with the reason.

    Args:
        messages: The same ranges that were judged, with headers.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, key: binary,
        value: binary, headers: array<struct<key: string, value: binary>>, schema_id: int, reason: string,
        field: string, withheld: boolean``: the last says whether they lack a part of the message. Lazy.
    """
    from pyspark.sql import functions as F

    told = _with_reasons(messages, stream, decoder, now, where=f"{VERDICT} = {DEAD_LETTER}")
    # A key often repeats what is masked in the value, and so may a header.
    whole = letters_hold(stream, decoder.record) == "keep"
    kept = "{}" if whole else "CASE WHEN false THEN {} END"
    return told.select(
        *(F.expr(f"kafka.{c}") for c in _PLACE),
        F.expr(kept.format("kafka.key")).alias("key"),
        F.expr(payload(VALUE, stream, decoder.record)).alias("value"),
        F.expr(kept.format("kafka.headers")).alias("headers"),
        F.expr(f"try_cast({FRAME}.schema_id AS INT)").alias("schema_id"),
        "reason",
        "field",
        F.lit(not whole).alias("withheld"),
    )


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
    told = _with_reasons(messages, stream, decoder, now).withColumn("outcome", F.expr(named))
    return told.select(*(F.expr(f"kafka.{c}") for c in _PLACE), "outcome", "reason", "field")


def _with_reasons(
    messages: DataFrame, stream: Stream, decoder: StreamDecoder, now: datetime, *, where: str = "true"
) -> DataFrame:
    """Judge, and say of each message that is condemned why: ``reason`` and ``field``."""
    from pyspark.sql import functions as F

    decoding = [TOMBSTONE_RULE, *decoder.rules()]
    of_rows = [*row_rules(stream, now), *unknown_rules(stream, decoder), *expectation_rules(stream)]
    shaping = [*route_sql(stream).rules, *of_rows]
    # The number of the rule first: the predicates are long, and Spark compiles them as often as they stand there.
    first = f"CASE WHEN NOT {DECODED} THEN {first_of(decoding)} ELSE {len(decoding)} + {first_of(shaping)} END"
    rules = [*decoding, *shaping]
    elements = elements_of(stream, decoder.record, messages.sparkSession)
    judged = _judged(messages, stream, decoder, now, elements).where(where)
    numbered = judged.withColumn(_RULE, F.expr(f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN {first} END"))
    reason, field_ = reason_told_by(_RULE, rules), field_told_by(_RULE, rules)
    return numbered.withColumns({"reason": F.expr(reason), "field": F.expr(field_)})


def suspects(messages: DataFrame, counts: Counts) -> DataFrame:
    """The messages that ``judge`` condemned, and few others: of many, the rest need not be decoded to find them again.

    Args:
        messages: As ``judge`` took them.
    """
    spark = messages.sparkSession
    if not counts.dead_letter_bloom:
        return messages.limit(0)
    if counts.messages <= _DECODED_AGAIN:
        return messages
    held = spark.createDataFrame([(counts.dead_letter_bloom,)], "bloom binary")  # no literal: plans would show it
    return messages.where(might_contain(spark, held.select("bloom").scalar(), "xxhash64(partition, offset)"))


def field_values(
    messages: DataFrame, stream: Stream, decoder: StreamDecoder, column: str, *, now: datetime
) -> DataFrame:
    """``_kdi_unknown`` or ``_kdi_misfits`` of the messages that would be rows and have such fields. Lazy."""
    elements = elements_of(stream, decoder.record, messages.sparkSession)
    judged = _judged(messages, stream, decoder, now, elements, values=column == UNKNOWN)
    return judged.where(f"size({column}) > 0").select(column)


def counted(counts: Observation, stream: Stream) -> Counts:
    """Read the observation of ``judge`` after its action."""
    seen = counts.get
    others: Counter[tuple[int, int]] = Counter()
    for bin_ in seen["others"] or ():
        others[divmod(int(bin_["x"]), _VERDICTS)] += int(bin_["y"])
    return Counts(
        messages=int(seen["messages"]),
        became_rows=int(seen["became_rows"]),
        rows=int(seen["rows"] or 0) if stream.explodes else int(seen["became_rows"]),
        others=others,
        digest=int(seen["digest"] or 0),
        dead_letter_digest=int(seen["dead_letter_digest"] or 0),
        tombstone_digest=int(seen["tombstone_digest"] or 0),
        filtered_digest=int(seen.get("filtered_digest") or 0),
        ages={int(bin_["x"]): int(bin_["y"]) for bin_ in seen["ages"] or ()},
        message_bytes=int(seen["bytes"] or 0),
        unknown_schemas=int(seen["unknown_schemas"]),
        unmet=unmet_counted(stream, seen),
        dead_letter_bloom=bytes(seen["dead_letter_bloom"] or b""),
        unknown=fields_counted(seen, UNKNOWN),
        misfits=fields_counted(seen, MISFITS),
    )


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


def _aggregates(
    spark: SparkSession, stream: Stream, decoder: StreamDecoder, topic_partitions: int, elements: Elements | None
) -> list[Column]:
    from pyspark.sql import functions as F

    digest = f"xxhash64({PARTITION}, {OFFSET})"
    # Exact as long as there are at least twice as many bins as different values; an aggregate for each pair of topic
    # partition and verdict would cost three times as much at 64 topic partitions. It skips nulls, and so the rows,
    # which are nearly all: how many of them each topic partition had follows from its range.
    other = f"CASE WHEN {VERDICT} <> {ROW} THEN {PARTITION} * {_VERDICTS} + {VERDICT} END"
    dead = f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN {digest} END"
    filtered = f"bit_xor(CASE WHEN {VERDICT} = {FILTERED} THEN {digest} END)"
    return [
        F.expr("count(*)").alias("messages"),
        F.expr(f"count_if({VERDICT} = {ROW})").alias("became_rows"),
        *([F.expr(f"sum({ROW_COUNT})").alias("rows")] if elements else ()),
        F.expr(f"bit_xor({digest})").alias("digest"),
        F.expr(f"bit_xor({dead})").alias("dead_letter_digest"),
        bloom_filter(spark, dead, items=_BLOOM_ITEMS, bits=_BLOOM_BITS).alias("dead_letter_bloom"),
        F.expr(f"bit_xor(CASE WHEN {VERDICT} = {TOMBSTONE} THEN {digest} END)").alias("tombstone_digest"),
        F.expr(f"histogram_numeric({other}, {2 * _VERDICTS * topic_partitions})").alias("others"),
        F.expr(f"histogram_numeric({_AGE}, {2 * BUCKETS})").alias("ages"),
        F.expr(f"sum({_BYTES})").alias("bytes"),
        F.expr(f"count_if({_UNKNOWN_SCHEMA})").alias("unknown_schemas"),
        *contract_aggregates(stream, decoder),
        *unmet_aggregates(stream),
        *([F.expr(filtered).alias("filtered_digest")] if stream.filter or stream.route else ()),
    ]
