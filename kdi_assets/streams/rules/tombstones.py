"""Tombstones: messages without a value, which the stream may skip."""

from __future__ import annotations

from kdi_assets.messages.formats.decoder import VALUE
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.verdict import TOMBSTONE, VERDICTS


class TombstonesRule(MessageRule):
    """The rule of ``tombstones: skip``. Under ``row`` and ``dead_letter`` the decoder decides."""

    skip_verdict = TOMBSTONE
    skip_outcome = VERDICTS[TOMBSTONE]

    def skips(self) -> str:
        return f"{VALUE} IS NULL"
