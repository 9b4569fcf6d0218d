"""Expectations: conditions on messages that would be rows. Messages that do not meet one are counted by its name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.streams.rules.errors import ExpectationNotMet
from kdi_assets.streams.rules.records import is_true
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.tally import Counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNMET = "_kdi_unmet"
"""The numbers of the expectations that a message does not meet, as ``array<string>``."""


class ExpectationsRule(MessageRule):
    """The rule of the field ``expectations``."""

    judges_rows = True

    def conditions(self) -> dict[str, str]:
        return {_field(expected): e.sql for expected, e in self.stream.expectations.items()}

    def reasons(self, now: datetime) -> list[Rule]:
        fields = [_field(expected) for expected, e in self.stream.expectations.items() if e.then == "dead_letter"]
        return [Rule("expectation_not_met", f"NOT {is_true(field)}", field) for field in fields]

    def with_columns(self, messages: DataFrame, *, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        numbers = ", ".join(f"CASE WHEN NOT {is_true(f)} THEN '{n}' END" for n, f in enumerate(self.conditions()))
        return messages.withColumn(UNMET, F.expr(f"CASE WHEN {where} THEN array_compact(array({numbers})) END"))

    def observed(self) -> dict[str, str]:
        return {"unmet": UNMET}

    def entry_fields(self, counts: Counts) -> dict[str, Any]:
        return {"unmet": {expected: unmet.count for expected, unmet in counts.unmet.items()}}

    def refuse(self, counts: Counts) -> None:
        """Refuse if an expectation with ``then: fail`` is not met.

        Raises:
            ExpectationNotMet: With the first of them.
        """
        for expected, expectation in self.stream.expectations.items():
            if expectation.then == "fail" and counts.unmet[expected].count:
                partition, offset = counts.unmet[expected].example or (0, 0)
                raise ExpectationNotMet(
                    stream=self.stream.name,
                    expectation=expected,
                    sql=expectation.sql,
                    count=counts.unmet[expected].count,
                    messages=counts.became_rows,
                    topic_partition=TopicPartition(self.stream.topic, partition),
                    offset=offset,
                    knows_offsets=self.stream.cluster.knows_offsets,
                )


def _field(expected: str) -> str:
    return f"expectations.{expected}"
