"""What one pass over messages counts of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kdi_assets.drain.contract import FieldsFound
from kdi_assets.drain.expectations import Unmet
from kdi_assets.drain.verdict import DEAD_LETTER
from kdi_assets.ledger.entry import LedgerEntry


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass over the messages saw.

    Attributes:
        messages: All of them.
        became_rows: Those that became a row, or several.
        rows: The rows that these became.
        others: (number of the topic partition, verdict) to messages, of those that did not.
        digest: ``bit_xor(xxhash64(partition, offset))`` of all messages: equal sets of offsets have equal digests.
        dead_letter_digest: The same of the dead letters.
        tombstone_digest: The same of the tombstones.
        filtered_digest: The same of the filtered messages.
        ages: Messages by their age when the drain was planned, in buckets of ``kdi_assets.ledger.freshness``.
        message_bytes: Of their keys and values.
        unknown_schemas: Those that name a schema which the decoder does not know.
        unmet: By expectation, the messages that do not meet it, among those that would be rows otherwise.
        dead_letter_bloom: Bloom filter of ``xxhash64(partition, offset)`` of the dead letters; empty of none.
        unknown: Fields that messages have and the record has not, among the same.
        misfits: Fields that were left out because a value does not suit its type, among the same.
    """

    messages: int
    became_rows: int
    rows: int
    others: Mapping[tuple[int, int], int]
    digest: int
    dead_letter_digest: int
    tombstone_digest: int
    filtered_digest: int = 0
    ages: Mapping[int, int] = field(default_factory=dict)
    message_bytes: int = 0
    unknown_schemas: int = 0
    unmet: Mapping[str, Unmet] = field(default_factory=dict)
    dead_letter_bloom: bytes = b""
    unknown: FieldsFound = FieldsFound()
    misfits: FieldsFound = FieldsFound()

    @property
    def dead_letters(self) -> int:
        """Dead letters of all topic partitions."""
        return sum(n for (_, verdict), n in self.others.items() if verdict == DEAD_LETTER)

    def noted_in(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry, with what the messages were besides their verdicts."""
        unmet = {expected: unmet.count for expected, unmet in self.unmet.items()}
        return replace(entry, unmet=unmet, unknown=self.unknown.fields, misfits=self.misfits.fields)
