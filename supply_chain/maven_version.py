"""The order of Maven's versions.

Source: Maven's POM reference, "Version Order Specification".
"""

from __future__ import annotations

import re
from itertools import zip_longest

_QUALIFIERS = ("alpha", "beta", "milestone", "rc", "snapshot", "", "sp")
_ALIASES = {"ga": "", "final": "", "release": "", "cr": "rc"}
_SHORT = {"a": "alpha", "b": "beta", "m": "milestone"}  # only before a digit
_PART = re.compile(r"\d+|[^\d.\-_]+|[.\-_]")

Item = tuple[str, int | str]
"""The separator before it, and the number or the qualifier."""


def is_older(one: str, other: str) -> bool:
    """Whether a version comes before another one."""
    return _compared(one, other) < 0


def _compared(one: str, other: str) -> int:
    for mine, theirs in zip_longest(_items(one), _items(other)):
        # A version that ends is padded by the null of the other's item: 1 is 1.0, and 1-rc comes before it.
        of_mine = _rank(mine if mine is not None else (theirs[0], _null(theirs)))
        of_theirs = _rank(theirs if theirs is not None else (mine[0], _null(mine)))
        if of_mine != of_theirs:
            return -1 if of_mine < of_theirs else 1
    return 0


def _null(item: Item) -> int | str:
    return 0 if isinstance(item[1], int) else ""


def _rank(item: Item) -> tuple[int, int, str]:
    """Its order: ``.qualifier`` = ``-qualifier`` < ``-number`` < ``.number``, and known qualifiers before others."""
    separator, value = item
    if isinstance(value, int):
        return (1 if separator == "-" else 2, value, "")
    known = _QUALIFIERS.index(value) if value in _QUALIFIERS else len(_QUALIFIERS)
    return (0, known, "" if value in _QUALIFIERS else value)


def _items(version: str) -> list[Item]:
    parts, separator = _PART.findall(version.lower()), "."
    found: list[Item] = []
    for n, part in enumerate(parts):
        if part in ".-_":
            if not found or parts[n - 1] in ".-_":
                found.append((separator, 0))  # nothing between two separators is 0
            separator = "-" if part == "_" else part
            continue
        if n and parts[n - 1] not in ".-_":
            separator = "-"  # between a digit and a letter
        before_digit = n + 1 < len(parts) and parts[n + 1].isdigit()
        text = _SHORT.get(part, part) if before_digit else part
        found.append((separator, int(part) if part.isdigit() else _ALIASES.get(text, text)))
        separator = "."
    return _trimmed(found)


def _trimmed(items: list[Item]) -> list[Item]:
    """Without nulls at the end, and before each hyphen."""
    kept: list[Item] = []
    for item in reversed(items):
        follows = kept[-1] if kept else None
        if item[1] in (0, "") and (follows is None or follows[0] == "-"):
            continue
        kept.append(item)
    return kept[::-1]
