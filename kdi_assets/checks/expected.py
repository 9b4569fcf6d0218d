"""How many messages of the last day did not meet what the stream expects of them."""

from __future__ import annotations

from datetime import timedelta

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject


def expectations(subject: Subject) -> Finding:
    """Whether every message that is a row, or would be, met every expectation, over the drains of the last 24 hours.

    What stops a drain is in no drain's entry: that run failed.
    """
    drains = subject.drains_since(subject.now - timedelta(hours=24))
    named = subject.stream.expectations
    unmet = {name: sum(d.entry.unmet.get(name, 0) for d in drains) for name in named}
    became_rows = sum(d.entry.became_rows for d in drains)
    numbers = {**unmet, "became_rows": became_rows, "drains": len(drains)}
    found = {name: count for name, count in unmet.items() if count}
    of = f"of the last 24 hours with {became_rows:,} messages that became rows"
    if not found:
        return Finding("passed", f"all expectations were met, {of}", numbers)
    lines = tuple(f"{name}: {count:,}, {named[name].then}: {named[name].sql}" for name, count in found.items())
    said = ", ".join(f"{count:,} messages did not meet {name}" for name, count in found.items())
    return Finding("warn", f"{said}, {of}", numbers, {"not met": lines})
