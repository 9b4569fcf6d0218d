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
    rows = sum(d.entry.rows for d in drains)
    numbers = {**unmet, "rows": rows, "drains": len(drains)}
    found = {name: count for name, count in unmet.items() if count}
    if not found:
        return Finding("passed", f"all expectations were met in the last 24 hours, {rows:,} rows", numbers)
    lines = tuple(f"{name}: {count:,}, {named[name].then}: {named[name].sql}" for name, count in found.items())
    said = ", ".join(f"{count:,} messages did not meet {name}" for name, count in found.items())
    return Finding("warn", f"{said}, of the last 24 hours with {rows:,} rows", numbers, {"not met": lines})
