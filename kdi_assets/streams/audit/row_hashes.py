"""Hashes of messages by today's definition, joined with hashes of the tables' rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.follow.refine.columns import EXACT_JSON
from kdi_assets.messages.coordinates import coordinates, ranges_sql
from kdi_assets.messages.formats.decoder import DECODED, VALUE
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME, dead_letters_with_state, with_messages
from kdi_assets.streams.rules.evaluate import evaluate
from kdi_assets.streams.rules.judge import dead_letter_columns
from kdi_assets.streams.rules.records import decode
from kdi_assets.streams.rules.rules import rules_of
from kdi_assets.streams.rules.shape import elements_of, explode_rows, row_structs, table_columns
from kdi_assets.streams.rules.table.table_rows import in_table_form

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kdi_assets.streams.rules.elements import Elements

_AT = ["partition", "offset"]
_LETTER = ("value", "key", "headers", "timestamp", "timestamp_type")
"""Columns of a dead letter that hold a part of its message, if nothing is masked or withheld."""


@dataclass(frozen=True)
class RowHashes:
    """Messages of some ranges, and their rows and dead letters.

    Attributes:
        history: Of the stream's table, which is read at the version of the history.
        messages: The messages of the ranges, from ``read_ranges``.
    """

    spark: SparkSession
    stream: Stream
    lake: str
    history: LiveHistory
    ranges: Sequence[OffsetRange]
    messages: DataFrame
    decoder: StreamDecoder

    def compared(self) -> DataFrame:
        """Compare each message with its row or dead letter.

        Returns:
            ``partition: int, offset: bigint, stored: boolean, agrees: boolean`` of every message: whether it has a row
            or a dead letter, and whether that is what the definition makes of it; without either, whether the
            definition makes neither of it.
        """
        from pyspark.sql import functions as F

        same = "CASE WHEN is_row THEN stored_hash = row_hash ELSE stored_hash = letter_hash END"
        both = self._messages().join(self._rows().unionByName(self._letters()), _AT, "left")
        seen = both.groupBy(*_AT).agg(
            F.expr("max(stored_hash IS NOT NULL)").alias("stored"),
            F.expr(f"coalesce(max({same}), false)").alias("same"),
            F.expr("max(rowless)").alias("rowless"),
        )
        return seen.selectExpr(*_AT, "stored", "CASE WHEN stored THEN same ELSE rowless END AS agrees")

    def _messages(self) -> DataFrame:
        from pyspark.sql import functions as F

        evaluated = evaluate(decode(self.messages, self.decoder), self.decoder, self._elements)
        skipped = "false"
        for rule in rules_of(self.decoder):
            evaluated = rule.with_columns(evaluated, where=DECODED)
            skipped += f" OR {rule.skips() or 'false'}"
        letter = [F.expr(self._whole[name]).alias(name) for name in self._letter]
        messages = evaluated.select(
            *row_structs(self._columns, self._elements),
            F.expr(skipped).alias("_kdi_rowless"),
            _hash(letter).alias("_kdi_letter_hash"),
        )
        rows = explode_rows(messages, self._columns, self._elements, beside=["_kdi_rowless", "_kdi_letter_hash"])
        rows = in_table_form(rows, self._table().schema, self.stream)
        types = {f.name.lower(): f.dataType for f in self._table().schema.fields}
        columns = [F.col(f"`{column}`").cast(types[column.lower()]).alias(column) for column in self._columns]
        return self._by_message(
            rows.select(
                *coordinates(rows, self.stream),
                F.col("_kdi_rowless").alias("rowless"),
                _hash(columns).alias("row_hash"),
                F.col("_kdi_letter_hash").alias("letter_hash"),
            ),
            "row_hash",
        )

    def _rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        table = self._table()
        columns = [F.col(f"`{column}`").alias(column) for column in self._columns]
        rows = table.select(*coordinates(table, self.stream), _hash(columns).alias("stored_hash"))
        messages = self._by_message(rows.where(self._in_ranges), "stored_hash")
        return messages.select(*_AT, "stored_hash", F.lit(True).alias("is_row"))

    def _by_message(self, rows: DataFrame, hashed: str) -> DataFrame:
        """One row per message, and in ``hashed`` the hash of all its rows."""
        from pyspark.sql import functions as F

        if self._elements is None:
            return rows
        others = [c for c in rows.columns if c not in (*_AT, "timestamp", "index", "count", hashed)]
        every = F.expr(f"xxhash64(count(*), bit_xor(xxhash64(index, {hashed})))").alias(hashed)
        # By their time too: messages of an earlier topic had the same offsets.
        return rows.groupBy(*_AT, "timestamp").agg(every, *(F.first(c).alias(c) for c in others))

    @cached_property
    def _elements(self) -> Elements | None:
        return elements_of(self.decoder, self.spark)

    @cached_property
    def _columns(self) -> dict[str, str]:
        """The result of ``table_columns``."""
        return table_columns(self.decoder, self._elements)

    def _letters(self) -> DataFrame:
        from pyspark.sql import functions as F

        letters = dead_letters_with_state(self.spark, self.stream, self.lake, self.history)
        no_row = letters.where(self._in_ranges).where(f"{OUTCOME} IS DISTINCT FROM 'row'")
        held = with_messages(self.spark, self.stream, self.lake, no_row)
        stored = _hash([F.col(name) for name in self._letter]).alias("stored_hash")
        return held.select(*_AT, stored, F.lit(False).alias("is_row"))

    @property
    def _letter(self) -> list[str]:
        """The columns that a dead letter has in common with its message."""
        held = dead_letter_columns(self.decoder)
        return [name for name in _LETTER if held[name] == self._whole[name]]

    @property
    def _whole(self) -> dict[str, str]:
        """Spark SQL of the columns of a dead letter that holds its whole message."""
        return {**self.stream.source_struct.letter, "value": VALUE}

    def _table(self) -> DataFrame:
        return rows_at(self.spark, self.stream.table_uri(self.lake), self.history.version)

    @property
    def _in_ranges(self) -> str:
        return ranges_sql(self.ranges)


def _hash(columns: Sequence[Column]) -> Column:
    """A hash of the columns' names and values; ``xxhash64`` alone ignores nulls and refuses maps."""
    from pyspark.sql import functions as F

    return F.xxhash64(F.to_json(F.struct(*columns), EXACT_JSON))
