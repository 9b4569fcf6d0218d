"""The contract: what becomes of fields that messages have and the record has not; counted by name in any case.

All of it is Spark SQL over the frame that ``judge`` has judged by everything but the expectations, and only of messages
whose verdict is still *row*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.rules.errors import OtherTypesFound, UnknownFieldsFound
from kdi_assets.drain.rules.records import DEAD_LETTER, ROW, VERDICT
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.formats.decoder import MISFITS, PATHS, RESCUED, UNKNOWN, paths_of
from kdi_assets.formats.rules import Rule, literal
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.stream.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_TYPES = ("wrong_type", "out_of_range", "too_precise")
NAMED = 100
"""Unknown fields that are told by name, those that most messages have."""


@dataclass(frozen=True, slots=True)
class FieldsFound:
    """Fields of a plan, and number and offset of a message that has some; ``None`` of none."""

    fields: FieldCounts = FieldCounts()
    example: tuple[int, int] | None = None


def unknown_rules(stream: Stream, decoder: StreamDecoder) -> list[Rule]:
    """What condemns a message that would be a row otherwise."""
    if stream.contract.new_columns != "discard_row" or not decoder.tells_unknown:
        return []
    return [Rule("unknown_field", f"{PATHS} IS NOT NULL", field_sql=f"get({PATHS}, 0)")]


def with_unknown(judged: DataFrame, stream: Stream, decoder: StreamDecoder, *, values: bool = False) -> DataFrame:
    """Add the unknown fields of messages that would be rows, and let their verdict follow from them.

    Args:
        judged: What ``StreamDecoder.decode`` gives, with the verdict.
        values: Whether what the fields hold is asked for, too.

    Returns:
        ``judged`` with ``_kdi_unknown_paths``, null where the format has no such fields, with ``_kdi_unknown`` where
        values are asked for, and with ``_kdi_rescued`` for its column; ``_kdi_misfits`` is null of whatever would be
        no row.
    """
    from pyspark.sql import functions as F

    if not decoder.tells_unknown:
        return judged.withColumn(PATHS, F.lit(None).cast("array<string>"))
    is_row = f"{VERDICT} = {ROW}"
    if values or stream.rescued:
        found = decoder.with_unknown(judged, where=is_row).withColumn(PATHS, F.expr(paths_of(UNKNOWN)))
    else:
        found = decoder.with_paths(judged, where=is_row)
    if stream.contract.leaves_out:
        found = found.withColumn(MISFITS, F.expr(f"CASE WHEN {is_row} THEN {MISFITS} END"))
    found = with_rescued(found, stream)
    if stream.contract.new_columns != "discard_row":
        return found
    dead = f"CASE WHEN {is_row} AND {PATHS} IS NOT NULL THEN {DEAD_LETTER} ELSE {VERDICT} END"
    return found.withColumn(VERDICT, F.expr(dead))


def with_rescued(frame: DataFrame, stream: Stream) -> DataFrame:
    """Add what the rescued column keeps of what did not fit; what is masked, in whatever spelling, is not among it.

    Args:
        frame: With ``_kdi_unknown`` and ``_kdi_misfits``.

    Returns:
        ``frame`` with ``_kdi_rescued: string``, if the stream has such a column.
    """
    from pyspark.sql import functions as F

    if not stream.rescued:
        return frame
    both = f"concat(coalesce({UNKNOWN}, array()), coalesce({MISFITS}, array()))"
    found = both if stream.contract.leaves_out else UNKNOWN
    masked = " OR ".join(_overlap("u.path", path) for path in stream.mask)
    kept = f"filter({found}, u -> NOT ({masked}))" if masked else found
    places = "map_from_entries(transform(kept, u -> struct(u.place, u.value)))"
    told = f"transform(array({kept}), kept -> CASE WHEN size(kept) > 0 THEN to_json({places}) END)"
    anything = " OR ".join(f"{column} IS NOT NULL" for column in (UNKNOWN, MISFITS))
    return frame.withColumn(RESCUED, F.expr(f"CASE WHEN {anything} THEN get({told}, 0) END"))


def _overlap(path: str, masked: str) -> str:
    """Spark SQL: whether a path is a masked one, or leads to it or through it, in any spelling."""
    # What lies in elements or values of what is masked is masked, too.
    one, other = f"concat(replace(lower({path}), '[]', ''), '.')", f"concat(lower({literal(masked)}), '.')"
    return f"startswith({one}, {other}) OR startswith({other}, {one})"


def fields_found(seen: Mapping[str, Any]) -> FieldsFound:
    """Read unknown fields, or misfits, from the tally."""
    messages, *at = seen["any"]
    if not messages:
        return FieldsFound()
    named = Counter({path: of[0] for path, of in seen["named"].items()})
    told = dict(named.most_common(NAMED))
    others = len(named) - len(told) + (1 if seen["others"] else 0)
    return FieldsFound(FieldCounts(messages, told, others), (at[0], at[1]))


def refuse_unknown(stream: Stream, unknown: FieldsFound, *, became_rows: int) -> None:
    """Refuse if messages have unknown fields and the contract is frozen.

    Raises:
        UnknownFieldsFound: With their names.
    """
    if stream.contract.new_columns == "freeze" and unknown.fields:
        partition, offset = unknown.example or (0, 0)
        raise UnknownFieldsFound(
            stream=stream.name,
            fields=unknown.fields,
            messages=became_rows,
            topic_partition=TopicPartition(stream.topic, partition),
            offset=offset,
        )


def refuse_other_types(
    stream: Stream, letters: Callable[[], DataFrame], *, dead_letters: int, became_rows: int
) -> None:
    """Refuse if values do not suit their types and the contract is frozen.

    Args:
        letters: Gives what ``judge.to_dead_letters`` does; called only where there are dead letters.

    Raises:
        OtherTypesFound: With the fields, each with the reason.
    """
    if stream.contract.types != "freeze" or not dead_letters:
        return
    from pyspark.sql import functions as F

    with spark_failures(stream, "counting the reasons of dead letters"):
        of_types = letters().where(F.col("reason").isin(*_OF_TYPES))
        first = F.min(F.struct("partition", "offset")).alias("first")
        found = of_types.groupBy("field", "reason").agg(F.count("*").alias("count"), first).collect()
    if found:
        named = Counter({f"{row['field'] or 'the message'}: {row['reason']}": int(row["count"]) for row in found})
        most = dict(named.most_common(NAMED))
        partition, offset = min(tuple(row["first"]) for row in found)
        raise OtherTypesFound(
            stream=stream.name,
            fields=FieldCounts(named.total(), most, len(named) - len(most)),
            messages=dead_letters + became_rows,
            topic_partition=TopicPartition(stream.topic, partition),
            offset=offset,
        )
