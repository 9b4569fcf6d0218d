"""The four verdicts: every message gets exactly one."""

from __future__ import annotations

VERDICT = "_kdi_verdict"
"""The working column that holds the number of a message's verdict."""
ROW, TOMBSTONE, DEAD_LETTER, FILTERED = 0, 1, 2, 3
VERDICTS = ("row", "tombstone", "dead_letter", "filtered")
"""The name of each verdict, at its number."""
ELSEWHERE = "elsewhere"
"""The outcome of a filtered message that belongs to another table of the route group."""
