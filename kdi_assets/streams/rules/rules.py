"""Rules: what a stream's document demands of its messages, each in a module of its own.

What a table makes of a message follows from the message, the table's document and the conditions of its route group
alone. So each table can be drained by itself, at any time, with the same result as in one read for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from kdi_assets.documents.model.message_format import AvroContainer, Files
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.rules.records import failed
from kdi_assets.streams.rules.verdict import FILTERED, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdi_assets.streams.rules.table.column_tree import ColumnTree
    from kdi_assets.streams.rules.tally import Counts


@dataclass(frozen=True)
class MessageRule:
    """One rule of one stream. A subclass overrides only the hooks that it needs.

    Every text is Spark SQL over the working columns: the source's struct, ``_kdi_value``, and for each expression the
    struct that ``records.result`` names.

    Attributes:
        skip_verdict: The verdict of a message that the rule skips: tombstone or filtered.
        skip_outcome: What ``peek``, replay and audit call such a message.
        judges_rows: Whether the rule sees only messages that are rows by every rule before it.
    """

    decoder: StreamDecoder
    skip_verdict: ClassVar[int] = FILTERED
    skip_outcome: ClassVar[str] = VERDICTS[FILTERED]
    judges_rows: ClassVar[bool] = False

    @property
    def stream(self) -> Stream:
        return self.decoder.stream

    def conditions(self) -> dict[str, str]:
        """Field of the document to its Spark SQL condition; evaluated for every decoded message."""
        return {}

    def expressions(self) -> dict[str, str]:
        """Field of the document to its Spark SQL expression of any type; evaluated for every decoded message."""
        return {}

    def skips(self) -> str:
        """Condition: the message becomes neither row nor dead letter. Empty: the rule skips none."""
        return ""

    def reasons(self, now: datetime) -> list[Rule]:
        """Why a decoded message becomes a dead letter, the first reason first; by default, an expression raised.

        Args:
            now: The moment of planning, UTC.
        """
        return [failed(field) for field in self.expressions()]

    def with_columns(self, messages: DataFrame, *, where: str) -> DataFrame:
        """Add the working columns that the rule's reasons, counts and table columns use.

        Args:
            messages: With the results of all expressions.
            where: Condition; the columns of other messages are not used.
        """
        return messages

    def with_null_columns(self, messages: DataFrame) -> DataFrame:
        """Add the same columns without values, to check the table's columns."""
        return messages

    def change_columns(self, tree: ColumnTree) -> None:
        """Change the table's columns.

        Raises:
            ShapeMistake: The document does not fit the columns.
        """

    def change_dead_letter(self, columns: dict[str, str]) -> dict[str, str]:
        """Change what a dead letter keeps of its message: column to Spark SQL."""
        return columns

    def observed(self) -> dict[str, str]:
        """What the tally counts: one of ``tally.NAMES`` to an ``array<string>`` of each message."""
        return {}

    def entry_fields(self, counts: Counts) -> dict[str, Any]:
        """The fields of the ledger entry that hold the rule's counts."""
        return {}

    def refuse(self, counts: Counts) -> None:
        """Raise a ``Terminal`` error if these counts must stop the drain."""

    def refuse_letters(self, letters: Callable[[], DataFrame], *, dead_letters: int, became_rows: int) -> None:
        """Raise a ``Terminal`` error if these dead letters must stop the drain.

        Args:
            letters: Gives them as ``judge.to_dead_letters`` does. It may run a Spark job: call it only when needed.
        """


def _names_files(stream: Stream) -> bool:
    return isinstance(stream.format, Files)


def _has_rows(stream: Stream) -> bool:
    """Whether the messages of the stream hold rows; the rows of files are judged before, as messages of their own."""
    return not _names_files(stream)


RULES: Mapping[str, Callable[[Stream], bool]] = {
    "tombstones.TombstonesRule": lambda stream: stream.tombstones == "skip",
    "route.RouteRule": lambda stream: stream.route is not None,
    "explode.ContainerRule": lambda stream: isinstance(stream.format, AvroContainer),
    "files.FilesRule": _names_files,
    "filter.FilterRule": lambda stream: bool(stream.filter),
    "explode.ExplodeRule": lambda stream: stream.explode is not None,
    "shape.FieldsRule": lambda stream: bool(stream.fields) and _has_rows(stream),
    "shape.ColumnsRule": _has_rows,
    "date_window.DateWindowRule": _has_rows,
    "contract.ContractRule": _has_rows,
    "expectations.ExpectationsRule": lambda stream: bool(stream.expectations) and _has_rows(stream),
    "mask.MaskRule": lambda stream: (
        _has_rows(stream) and bool(stream.mask or stream.mask_tagged or stream.dead_letter_payload == "withhold")
    ),
}
"""Module and class of each rule to the question whether a stream uses it; only then is the module imported.

A message passes the rules in this order, and the first one that decides gives its verdict and its reason.
"""


def rules_of(decoder: StreamDecoder) -> list[MessageRule]:
    """The rules that the decoder's stream uses, in their order."""
    found = []
    for path, applies in RULES.items():
        if applies(decoder.stream):
            module, _, class_ = path.partition(".")
            found.append(getattr(import_module(f"{__package__}.{module}"), class_)(decoder))
    return found


def with_counts(entry: LedgerEntry, decoder: StreamDecoder, counts: Counts) -> LedgerEntry:
    """The entry with the counts of every rule."""
    for rule in rules_of(decoder):
        entry = replace(entry, **rule.entry_fields(counts))
    return entry
