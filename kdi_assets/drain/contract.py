"""The contract: what becomes of fields that messages have and the record has not; counted by name in any case.

All of it is Spark SQL over the frame that ``judge`` has judged by everything but the expectations, and only of messages
whose verdict is still *row*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.errors import Terminal
from kdi_assets.formats.decoder import UNKNOWN
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.formats.rules import Rule
from kdi_assets.ledger.entry import UnknownFields
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAMED = 100
"""Unknown fields that are told by name, those that most messages have."""
_NAMES, _COUNT, _SETS, _AT = "_kdi_unknown_names", "unknown_count", "unknown_sets", "unknown_at"
# What messages name at will must fill neither memory nor log: so many names of a message, so many characters of a name.
_OF_A_MESSAGE, _CHARACTERS = 30, 120
# Different sets of names are counted exactly up to three quarters of these; beyond, the frequent ones are.
_TRACKED, _TAKEN = 4096, 1000


@dataclass(eq=False, kw_only=True)
class UnknownFieldsFound(Terminal):
    """Messages have fields that the record has not, and the contract is frozen."""

    stream: str
    unknown: UnknownFields
    rows: int
    topic_partition: TopicPartition
    offset: int

    def parts(self) -> tuple[str, str, str]:
        at = f"{self.topic_partition} offset {self.offset}"
        return (
            f"{self.stream}: {self.unknown.messages:,} of {self.rows:,} messages that would become rows have fields "
            f"that the record has not: {self.unknown.listed()}; one of them: {at}. `contract.new_columns` is freeze.",
            "nothing was committed and no dead letter was written; positions stay as they are.",
            f"kdi peek {self.stream} --topic-partition {self.topic_partition} --offset {self.offset} shows it; declare "
            "the fields in `schema`, or let `contract.new_columns` be evolve, discard_value or discard_row",
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """Unknown fields of a plan, and number and offset of a message that has some; ``None`` of none."""

    fields: UnknownFields = UnknownFields()
    example: tuple[int, int] | None = None


def unknown_rules(stream: Stream, decoder: StreamDecoder) -> list[Rule]:
    """What condemns a message that would be a row otherwise."""
    if stream.contract.new_columns != "discard_row" or not decoder.tells_unknown:
        return []
    return [Rule("unknown_field", f"{UNKNOWN} IS NOT NULL", field_sql=f"get({UNKNOWN}, 0).place")]


def with_unknown(
    judged: DataFrame, stream: Stream, decoder: StreamDecoder, *, verdict: str, row: int, dead_letter: int
) -> DataFrame:
    """Add the unknown fields of messages that would be rows, and let their verdict follow from them.

    Args:
        judged: What ``StreamDecoder.decode`` gives, with the column ``verdict``.

    Returns:
        ``judged`` with ``_kdi_unknown``, where the decoder knows of such.
    """
    from pyspark.sql import functions as F

    if not decoder.tells_unknown:
        return judged
    found = decoder.with_unknown(judged, where=f"{verdict} = {row}")
    if stream.contract.new_columns != "discard_row":
        return found
    dead = f"CASE WHEN {verdict} = {row} AND {UNKNOWN} IS NOT NULL THEN {dead_letter} ELSE {verdict} END"
    return found.withColumn(verdict, F.expr(dead))


def unknown_columns(decoder: StreamDecoder) -> dict[str, str]:
    """Column to Spark SQL over what ``with_unknown`` gives: what its aggregates are made of."""
    if not decoder.tells_unknown:
        return {}
    path = "coalesce(nullif(translate(u.path, '\\n', ' '), ''), '\"\"')"
    paths = f"array_sort(array_distinct(transform({UNKNOWN}, u -> left({path}, {_CHARACTERS}))))"
    # An empty line stands for those that are not named.
    more = f"CASE WHEN size(paths) > {_OF_A_MESSAGE} THEN '\\n' ELSE '' END"
    text = f"concat(array_join(slice(paths, 1, {_OF_A_MESSAGE}), '\\n'), {more})"
    return {_NAMES: f"CASE WHEN {UNKNOWN} IS NOT NULL THEN get(transform(array({paths}), paths -> {text}), 0) END"}


def unknown_aggregates(decoder: StreamDecoder, *, partition: str, offset: str) -> list[Column]:
    """Counts of them, and where the first ones lie."""
    from pyspark.sql import functions as F

    if not decoder.tells_unknown:
        return []
    at = f"CASE WHEN {_NAMES} IS NOT NULL THEN named_struct('partition', {partition}, 'offset', {offset}) END"
    return [
        F.expr(f"count({_NAMES})").alias(_COUNT),
        F.expr(f"approx_top_k({_NAMES}, {_TAKEN}, {_TRACKED})").alias(_SETS),
        F.expr(f"min({at})").alias(_AT),
    ]


def unknown_counted(seen: Mapping[str, Any]) -> Unknown:
    """Read them from the observation."""
    if not seen.get(_COUNT):
        return Unknown()
    by_path: Counter[str] = Counter()
    for item in seen[_SETS]:
        for path in (item["item"] or "").split("\n") if item["item"] is not None else ():
            by_path[path] += int(item["count"])
    unnamed = 1 if by_path.pop("", 0) or len(seen[_SETS]) == _TAKEN else 0
    named = dict(by_path.most_common(NAMED))
    others = len(by_path) - len(named) + unnamed
    return Unknown(UnknownFields(int(seen[_COUNT]), named, others), tuple(seen[_AT]))


def refuse_unknown(stream: Stream, unknown: Unknown, *, rows: int) -> None:
    """Refuse if messages have unknown fields and the contract is frozen.

    Raises:
        UnknownFieldsFound: With their names.
    """
    if stream.contract.new_columns == "freeze" and unknown.fields:
        partition, offset = unknown.example or (0, 0)
        raise UnknownFieldsFound(
            stream=stream.name,
            unknown=unknown.fields,
            rows=rows,
            topic_partition=TopicPartition(stream.topic, partition),
            offset=offset,
        )
