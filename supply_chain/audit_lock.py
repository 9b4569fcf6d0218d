"""`make audit-lock DB=…`: the locked packages and jars against a copy of OSV's database, without a network."""

from __future__ import annotations

import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from supply_chain.advisories import Finding, ecosystems, find_vulnerable, read_advisories
from supply_chain.bundled import with_bundled
from supply_chain.locks import locked_components

FOUND, USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found; returns 0 if nothing is, 1 if something is, 2 if the database cannot answer."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or not given[0]:
        return _refuse("give the database: make audit-lock DB=FOLDER, with OSV's PyPI/all.zip and Maven/all.zip")
    components, counted = with_bundled(locked_components()), Counter[str]()
    try:
        findings = find_vulnerable(components, _counted(Path(given[0]), counted))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as failed:
        return _refuse(f"{given[0]} cannot be read as OSV's: {failed!r}")
    if missing := {component.ecosystem for component in components} - counted.keys():
        return _refuse(f"{given[0]} has no advisories of {' and '.join(sorted(missing))}: nothing is known of these")
    sys.stdout.write(_table(findings))
    counts = ", ".join(f"{counted[name]:,} of {name}" for name in sorted({c.ecosystem for c in components}))
    unknown = sum(not component.is_known for component in components)
    sys.stderr.write(
        f"{len(components) - unknown} components compared, {unknown} jars inside pyspark not, because they do not name "
        f"their group; advisories: {counts}; {len(findings)} found\n"
    )
    return FOUND if findings else 0


def _counted(place: Path, counted: Counter[str]) -> Iterator[dict[str, Any]]:
    for advisory in read_advisories(place):
        counted.update(ecosystems(advisory))
        yield advisory


def _table(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    head = ("COMPONENT", "VERSION", "USE", "ADVISORY", "FIXED IN", "SUMMARY")
    rows = [head, *(_row(finding) for finding in findings)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head) - 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    return "\n".join(lines) + "\n"


def _row(finding: Finding) -> tuple[str, ...]:
    of = finding.component
    ids = " ".join([finding.advisory, *(name for name in finding.also if name.startswith("CVE-"))])
    fixed = (finding.fixed_in or "-") if finding.certain else "cannot be compared"
    return of.name, of.version, of.inside or of.need, ids, fixed, finding.summary[:80]


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return USAGE


if __name__ == "__main__":
    sys.exit(main())
