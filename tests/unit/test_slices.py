"""Slices of the proof: together they hold every module, and none twice."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests.slices import Slice

TESTS = Path(__file__).parent.parent
MODULES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def test_four_slices_hold_every_module_once_and_none_is_much_larger() -> None:
    slices = [{m for m in MODULES if Slice(number, 4).holds(m)} for number in (1, 2, 3, 4)]

    assert sorted(module for part in slices for module in part) == MODULES
    assert max(map(len, slices)) < len(MODULES) / 3


def test_one_slice_of_one_is_everything() -> None:
    assert all(Slice.parsed("1/1").holds(module) for module in MODULES)


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "a/b", "1/0"])
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no slice"):
        Slice.parsed(text)
