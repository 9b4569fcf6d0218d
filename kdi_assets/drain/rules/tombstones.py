"""Tombstones: messages without a value, which the stream may skip."""

from __future__ import annotations

from kdi_assets.drain.rules.rules import MessageRule
from kdi_assets.drain.rules.verdict import TOMBSTONE, VERDICTS
from kdi_assets.formats.decoder import VALUE


class TombstonesRule(MessageRule):
    """The rule of ``tombstones: skip``. Under ``row`` and ``dead_letter`` the decoder decides."""

    skip_verdict = TOMBSTONE
    skip_outcome = VERDICTS[TOMBSTONE]

    def skips(self) -> str:
        return f"{VALUE} IS NULL"
