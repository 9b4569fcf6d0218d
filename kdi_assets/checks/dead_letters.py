"""How many messages of the last day became dead letters."""

from __future__ import annotations

from datetime import timedelta

from kdi_assets.checks.finding import Finding, Level
from kdi_assets.checks.subject import Subject

TENFOLD, HALF = 10, 0.5


def dead_letter_rate(subject: Subject) -> Finding:
    """Whether the share of dead letters is above the stream's limit, over the drains of the last 24 hours."""
    drains, limit = subject.drains_since(subject.now - timedelta(hours=24)), subject.stream.checks.dead_letter_rate
    letters = sum(c.entry.dead_letters for c in drains)
    messages = sum(c.entry.messages for c in drains)
    share = letters / messages if messages else 0.0
    numbers = {"share": share, "dead_letters": letters, "messages": messages, "limit": limit, "drains": len(drains)}
    said = f"{letters:,} of {messages:,} messages ({share:.2%}) of the last 24 hours became dead letters"
    level = _level(share, limit)
    if level != "passed":
        said += f"; the limit is {limit:.2%}; `kdi peek {subject.stream.name}` shows what becomes of messages"
    return Finding(level, said, numbers)


def _level(share: float, limit: float) -> Level:
    if share <= limit:
        return "passed"
    return "error" if share >= min(TENFOLD * limit, max(limit, HALF)) else "warn"
