"""Slices of the test modules, so that a few runs cover every test once."""

from __future__ import annotations

import argparse
import re
import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """The modules of one of several runs; ``number`` counts from 1."""

    number: int
    count: int

    @classmethod
    def parsed(cls, text: str) -> Slice:
        """A slice by its text, as ``2/4``."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise argparse.ArgumentTypeError(f"{text!r} is no slice; write 1/4, 2/4, 3/4 or 4/4")
        return cls(int(found[1]), int(found[2]))

    def holds(self, module: str) -> bool:
        """Whether a module belongs here; by its path alone.

        A new test or module moves no other one to another slice: else a module could miss its turn between two commits.
        """
        return zlib.crc32(module.encode()) % self.count == self.number - 1
