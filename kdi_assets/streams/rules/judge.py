"""One verdict for every message, and the reason of every dead letter, in the pass that writes the rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.decoder import DECODED, FRAME, PATHS, UNKNOWN, VALUE, WRONG_SHARD
from kdi_assets.messages.formats.rules import Rule, any_of, field_of, first_of, literal, reason_of
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.rules.evaluate import evaluate
from kdi_assets.streams.rules.records import decode
from kdi_assets.streams.rules.rules import MessageRule, rules_of
from kdi_assets.streams.rules.shape import elements_of, explode_rows, row_structs, table_columns
from kdi_assets.streams.rules.table.unreadable_rules import unreadable_rules
from kdi_assets.streams.rules.tally import NAMES, Counts, PassTally
from kdi_assets.streams.rules.verdict import DEAD_LETTER, ROW, VERDICT, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdi_assets.streams.rules.elements import Elements

_PLACE = ("topic", "partition", "offset", "timestamp", "timestamp_type")
_RULE = "_kdi_rule"
_IS_ROW = "_kdi_is_row"
_IS_ROW_SO_FAR = f"{VERDICT} = {ROW}"
_TOMBSTONE = Rule("tombstone", f"{VALUE} IS NULL")
_WRONG_SHARD = Rule("wrong_shard", WRONG_SHARD)


def judge(messages: DataFrame, decoder: StreamDecoder, *, now: datetime, tally: PassTally) -> DataFrame:
    """Decode, evaluate, judge and count messages; keep the rows.

    Args:
        messages: As ``reader.read_ranges`` gives them.
        now: The moment of planning, UTC.
        tally: Counts the messages of the first action on the result, and of no other.

    Returns:
        The table's columns, one row for each message that becomes one, or for each of its elements. Lazy.
    """
    from pyspark.sql import functions as F

    elements = elements_of(decoder, messages.sparkSession)
    columns = table_columns(decoder, elements)
    letter = ", ".join(f"{literal(column)}, {sql}" for column, sql in dead_letter_columns(decoder).items())
    names = {name: sql for rule in rules_of(decoder) for name, sql in rule.observed().items()}
    said = decoder.stream.source_struct.letter
    is_row = tally.counted(
        [
            VERDICT,
            said["partition"],
            said["offset"],
            f"unix_micros({said['timestamp']})",
            elements.row_count if elements else "1",
            f"coalesce(length({VALUE}), 0) + coalesce(length({said['key']}), 0)",
            decoder.unknown_schema,
            *(names.get(name, "CAST(NULL AS array<string>)") for name in NAMES),
            f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN named_struct({letter}) END",
        ]
    )
    # The counting expression is a selected column, not the filter itself: Spark would push such a filter below the
    # columns that judge, and evaluate these twice.
    judged = with_reasons(messages, decoder, now, elements)
    counted = judged.select(*row_structs(columns, elements, where=_IS_ROW_SO_FAR), is_row.alias(_IS_ROW))
    return explode_rows(counted.where(F.col(_IS_ROW)), columns, elements)


def to_dead_letters(messages: DataFrame, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """The dead letters among messages, with their reasons.

    Args:
        messages: As ``judge`` takes them.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, key: binary,
        value: binary, headers: array<struct<key: string, value: binary>>, schema_id: int, reason: string,
        field: string, withheld: boolean``, which says whether they lack a part of the message, and
        ``SourceStruct.more``. Lazy.
    """
    from pyspark.sql import functions as F

    elements = elements_of(decoder, messages.sparkSession)
    judged = with_reasons(messages, decoder, now, elements).where(f"{VERDICT} = {DEAD_LETTER}")
    return judged.select(*(F.expr(sql).alias(column) for column, sql in dead_letter_columns(decoder).items()))


def letters_of(messages: DataFrame, decoder: StreamDecoder, counts: Counts, *, now: datetime) -> DataFrame:
    """The dead letters of a pass, as ``to_dead_letters`` gives them. If they were too many to keep, judge once more.

    Args:
        messages: The messages of the pass.
        counts: The counts of the pass.
    """
    return to_dead_letters(messages, decoder, now=now) if counts.letters is None else counts.letters


def verdicts(messages: DataFrame, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """The verdict of ``judge`` on every message.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, outcome: string,
        reason: string, field: string``: the outcome is one of ``VERDICTS`` or a rule's ``skip_outcome``, and a dead
        letter has a reason. Lazy.
    """
    from pyspark.sql import functions as F

    outcome = f"get(array({', '.join(map(literal, VERDICTS))}), {VERDICT})"
    for rule in rules_of(decoder):
        if rule.skip_outcome != VERDICTS[rule.skip_verdict]:
            skipped = f"{VERDICT} = {rule.skip_verdict} AND ({rule.skips()})"
            outcome = f"CASE WHEN {skipped} THEN {literal(rule.skip_outcome)} ELSE {outcome} END"
    elements = elements_of(decoder, messages.sparkSession)
    judged = with_reasons(messages, decoder, now, elements).withColumn("outcome", F.expr(outcome))
    said = decoder.stream.source_struct.letter
    return judged.select(*(F.expr(said[c]).alias(c) for c in _PLACE), "outcome", "reason", "field")


def field_values(messages: DataFrame, decoder: StreamDecoder, column: str, *, now: datetime) -> DataFrame:
    """``_kdi_unknown`` or ``_kdi_misfits`` of the messages that would be rows and have such fields. Lazy."""
    elements = elements_of(decoder, messages.sparkSession)
    judged, _ = _judged(messages, decoder, rules_of(decoder), now, elements)
    if column == UNKNOWN:
        # The contract added only their paths, of messages that were rows before the expectations.
        judged = decoder.with_unknown(judged, where=f"{PATHS} IS NOT NULL")
    return judged.where(f"size({column}) > 0").select(column)


def dead_letter_columns(decoder: StreamDecoder) -> dict[str, str]:
    """Column of a dead letter to Spark SQL over the working columns, ``reason`` and ``field``."""
    struct = decoder.stream.source_struct
    said = struct.letter
    columns = {
        **{column: said[column] for column in _PLACE},
        "key": said["key"],
        "value": VALUE,
        "headers": said["headers"],
        "schema_id": f"try_cast({FRAME}.schema_id AS INT)",
        "reason": "reason",
        "field": "field",
        "withheld": "false",
        **{column: said[column] for column in struct.more},
    }
    for rule in rules_of(decoder):
        columns = rule.change_dead_letter(columns)
    return columns


def verdict_sql(rules: Sequence[MessageRule], now: datetime, unreadable: Sequence[Rule]) -> str:
    """Spark SQL over what ``evaluate`` gives: the verdict by all rules but those that see only rows.

    Args:
        unreadable: As ``unreadable_rules`` gives them.
    """
    cases: list[str] = []
    last: list[Rule] = []
    for rule in rules:
        reasons, skips = ([] if rule.judges_rows else rule.reasons(now)), rule.skips()
        if not skips:
            last += reasons
            continue
        # Before the reasons of other rules: a message that is skipped needs no date and no valid expression.
        if reasons:
            cases.append(f"WHEN NOT {DECODED} OR {any_of(reasons)} THEN {DEAD_LETTER}")
        cases.append(f"WHEN {skips} THEN {rule.skip_verdict}")
    dead = f"NOT {DECODED} OR {any_of([*last, *unreadable])}"
    return f"CASE {' '.join(cases)} WHEN {dead} THEN {DEAD_LETTER} ELSE {ROW} END"


def with_reasons(messages: DataFrame, decoder: StreamDecoder, now: datetime, elements: Elements | None) -> DataFrame:
    """Judge messages, and add ``reason`` and ``field`` of dead letters."""
    from pyspark.sql import functions as F

    rules = rules_of(decoder)
    judged, unreadable = _judged(messages, decoder, rules, now, elements)
    by_source = [_WRONG_SHARD] if WRONG_SHARD in judged.columns else []
    undecoded = [*by_source, _TOMBSTONE, *decoder.rules()]
    of_all = [reason for rule in rules if not rule.judges_rows for reason in rule.reasons(now)]
    of_rows = [reason for rule in rules if rule.judges_rows for reason in rule.reasons(now)]
    decoded = [*of_all, *unreadable, *of_rows]
    reasons = [*undecoded, *decoded]
    # The number of the reason first: the predicates are long, and Spark compiles them as often as they stand there.
    first = f"CASE WHEN NOT {DECODED} THEN {first_of(undecoded)} ELSE {len(undecoded)} + {first_of(decoded)} END"
    numbered = judged.withColumn(_RULE, F.expr(f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN {first} END"))
    reason, field = reason_of(_RULE, reasons), field_of(_RULE, reasons)
    return numbered.withColumns({"reason": F.expr(reason), "field": F.expr(field)})


def _judged(
    messages: DataFrame, decoder: StreamDecoder, rules: Sequence[MessageRule], now: datetime, elements: Elements | None
) -> tuple[DataFrame, list[Rule]]:
    """The messages with their verdicts, and the rules of unreadable values among those that made them."""
    from pyspark.sql import functions as F

    evaluated = evaluate(decode(messages, decoder), decoder, elements)
    unreadable = unreadable_rules(evaluated, decoder, elements)
    judged = evaluated.withColumn(VERDICT, F.expr(verdict_sql(rules, now, unreadable)))
    # In the order of the reasons in ``with_reasons``: another order gives dead letters a reason that did not decide.
    for rule in rules:
        judged = rule.with_columns(judged, where=_IS_ROW_SO_FAR)
        if rule.judges_rows and (reasons := rule.reasons(now)):
            dead = f"CASE WHEN {_IS_ROW_SO_FAR} AND ({any_of(reasons)}) THEN {DEAD_LETTER} ELSE {VERDICT} END"
            judged = judged.withColumn(VERDICT, F.expr(dead))
    return judged, unreadable
