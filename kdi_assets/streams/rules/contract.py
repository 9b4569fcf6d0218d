"""Contract: fields of messages that the record does not have, and values that do not suit their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.formats.decoder import MISFITS, PATHS, RESCUED, UNKNOWN, paths_of
from kdi_assets.messages.formats.rules import Rule, literal
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.rules.errors import OtherTypesFound, UnknownFieldsFound
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.table.column_tree import ColumnTree
from kdi_assets.streams.rules.tag_masks import masks_of
from kdi_assets.streams.rules.tally import NAMED, Counts
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPE_REASONS = ("wrong_type", "out_of_range", "too_precise")


class ContractRule(MessageRule):
    """The rule of the fields ``contract`` and ``rescued``. Without them, unknown fields are counted."""

    judges_rows = True

    def reasons(self, now: datetime) -> list[Rule]:
        if self.stream.contract.new_columns != "discard_row" or not self.decoder.finds_unknown_fields:
            return []
        return [Rule("unknown_field", f"{PATHS} IS NOT NULL", field_sql=f"get({PATHS}, 0)")]

    def with_columns(self, messages: DataFrame, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown_paths`` if the format knows them, and ``_kdi_rescued`` if the stream has the column."""
        from pyspark.sql import functions as F

        if not self.decoder.finds_unknown_fields:
            return messages
        if self.stream.rescued:
            found = self.decoder.with_unknown(messages, where=where).withColumn(PATHS, F.expr(paths_of(UNKNOWN)))
        else:
            found = self.decoder.with_unknown_paths(messages, where=where)
        if self.stream.contract.leaves_out:
            found = found.withColumn(MISFITS, F.expr(f"CASE WHEN {where} THEN {MISFITS} END"))
        return found.withColumn(RESCUED, F.expr(self._rescued())) if self.stream.rescued else found

    def with_null_columns(self, messages: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return messages.withColumn(RESCUED, F.lit(None).cast("variant" if self.stream.rescues_variant else "string"))

    def change_columns(self, tree: ColumnTree) -> None:
        if self.stream.rescued:
            tree.put(self.stream.rescued_column, RESCUED, "rescued", taken="give it a name of its own")

    def observed(self) -> dict[str, str]:
        unknown = {"unknown": PATHS} if self.decoder.finds_unknown_fields else {}
        return {**unknown, "misfits": paths_of(MISFITS)}

    def entry_fields(self, counts: Counts) -> dict[str, Any]:
        return {"unknown": counts.unknown.fields, "misfits": counts.misfits.fields}

    def refuse(self, counts: Counts) -> None:
        """Refuse unknown fields if the contract is frozen.

        Raises:
            UnknownFieldsFound: With their names.
        """
        if self.stream.contract.new_columns != "freeze" or not counts.unknown.fields:
            return
        partition, offset = counts.unknown.example or (0, 0)
        raise UnknownFieldsFound(
            stream=self.stream.name,
            fields=counts.unknown.fields,
            messages=counts.became_rows,
            topic_partition=TopicPartition(self.stream.topic, partition),
            offset=offset,
            knows_offsets=self.stream.cluster.knows_offsets,
        )

    def refuse_letters(self, letters: Callable[[], DataFrame], *, dead_letters: int, became_rows: int) -> None:
        """Refuse values that do not suit their types if the contract is frozen.

        Raises:
            OtherTypesFound: With the fields, each with its reason.
        """
        if self.stream.contract.types != "freeze" or not dead_letters:
            return
        from pyspark.sql import functions as F

        with spark_failures(self.stream, "counting the reasons of dead letters"):
            of_types = letters().where(F.col("reason").isin(*_TYPE_REASONS))
            first = F.min(F.struct("partition", "offset")).alias("first")
            found = of_types.groupBy("field", "reason").agg(F.count("*").alias("count"), first).collect()
        if not found:
            return
        named = Counter({f"{row['field'] or 'the message'}: {row['reason']}": int(row["count"]) for row in found})
        most = dict(named.most_common(NAMED))
        partition, offset = min(tuple(row["first"]) for row in found)
        raise OtherTypesFound(
            stream=self.stream.name,
            fields=FieldCounts(named.total(), most, len(named) - len(most)),
            messages=dead_letters + became_rows,
            topic_partition=TopicPartition(self.stream.topic, partition),
            offset=offset,
            knows_offsets=self.stream.cluster.knows_offsets,
        )

    def _rescued(self) -> str:
        """Spark SQL of the rescued column: an object of all unknown fields and misfits that are not masked."""
        both = f"concat(coalesce({UNKNOWN}, array()), coalesce({MISFITS}, array()))"
        found = both if self.stream.contract.leaves_out else UNKNOWN
        uses = self.decoder.uses
        masks = masks_of(self.stream, self.decoder.record)
        paths = [".".join(uses.message_steps(tuple(path.split(".")))) for path in masks]
        masked = " OR ".join(_overlaps("u.path", path) for path in paths)
        kept = f"filter({found}, u -> NOT ({masked}))" if masked else found
        places = "map_from_entries(transform(kept, u -> struct(u.place, u.value)))"
        made = "to_variant_object" if self.stream.rescues_variant else "to_json"
        object_ = f"transform(array({kept}), kept -> CASE WHEN size(kept) > 0 THEN {made}({places}) END)"
        anything = " OR ".join(f"{column} IS NOT NULL" for column in (UNKNOWN, MISFITS))
        return f"CASE WHEN {anything} THEN get({object_}, 0) END"


def _overlaps(path: str, masked: str) -> str:
    """Spark SQL of ``records.overlap``: a path inside an element or value of a masked column is masked, too."""
    one, other = f"concat(replace(lower({path}), '[]', ''), '.')", f"concat(lower({literal(masked)}), '.')"
    return f"startswith({one}, {other}) OR startswith({other}, {one})"
