"""Bytes of messages that were changed on their way."""

from __future__ import annotations

import random


def damaged(value: bytes, chance: random.Random) -> bytes:
    """The bytes with up to three changes, at least one; some may undo others."""
    bytes_ = bytearray(value)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(bytes_) + 1)
        match chance.randrange(5):
            case 0:
                bytes_[at : at + 1] = chance.randbytes(1)
            case 1:
                del bytes_[at : at + chance.randrange(1, 4)]
            case 2:
                bytes_[at:at] = chance.choice([chance.randbytes(chance.randrange(1, 4)), b"\xff" * 9 + b"\x01"])
            case 3:
                bytes_ = bytes_[:at]
            case 4:
                bytes_ += bytes_[at : at + chance.randrange(40)]
    return bytes(bytes_)
