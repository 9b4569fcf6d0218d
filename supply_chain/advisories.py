"""Known vulnerabilities as OSV publishes them: a folder or a zip of JSON files.

Source: OSV schema 1.7, "affected[].ranges[].events" and "Evaluation".
"""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from supply_chain.locks import Component
from supply_chain.maven_version import is_older

Event = Mapping[str, str]
Older = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """A component that an advisory names.

    Attributes:
        also: Other ids of the same vulnerability.
        fixed_in: The first fixed version after the component's; empty if there is none.
        certain: Whether the component's version could be compared with those of the advisory.
    """

    component: Component
    advisory: str
    also: tuple[str, ...]
    fixed_in: str
    summary: str
    certain: bool = True


def read_advisories(place: Path) -> Iterator[dict[str, Any]]:
    """Every record in a zip, in a JSON file, or in all of them in a folder.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: Something there cannot be read.
    """
    if place.is_dir():
        for path in sorted(path for path in place.rglob("*") if path.suffix in (".json", ".zip")):
            yield from read_advisories(path)
    elif place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            yield from (json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json"))
    else:
        yield json.loads(place.read_text())


def find_vulnerable(components: Iterable[Component], advisories: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """The components that advisories name, one finding for each vulnerability; withdrawn advisories do not count."""
    by_name: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for component in components:
        by_name[component.ecosystem, component.name].append(component)
    found: list[Finding] = []
    for advisory in advisories:
        if "withdrawn" in advisory:
            continue
        for affected in advisory.get("affected", ()):
            for component in by_name.get(_package(affected), ()):
                if (fix := _fix_of_affected(component, affected)) is not None:
                    found.append(_finding(component, advisory, *fix))
    return tuple(_merged(found))


def ecosystems(advisory: Mapping[str, Any]) -> set[str]:
    """The ecosystems that an advisory is about."""
    return {_package(affected)[0] for affected in advisory.get("affected", ())}


def _package(affected: Mapping[str, Any]) -> tuple[str, str]:
    package = affected.get("package", {})
    ecosystem, name = package.get("ecosystem", "").partition(":")[0], package.get("name", "")
    return ecosystem, canonicalize_name(name) if ecosystem == "PyPI" else name


def _fix_of_affected(component: Component, affected: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The fixed version, and whether the versions could be compared; ``None`` if the component is not affected."""
    older = _older_package if component.ecosystem == "PyPI" else is_older
    ranges = [r["events"] for r in affected.get("ranges", ()) if r.get("type") in ("ECOSYSTEM", "SEMVER")]
    listed = component.version in affected.get("versions", ())
    try:
        within = [events for events in ranges if _is_within(component.version, events, older)]
        fixes = [e["fixed"] for events in within or ranges for e in events if "fixed" in e]
        later = [fix for fix in fixes if older(component.version, fix)]
    except InvalidVersion:
        return "", False  # cannot be judged: a person must look
    if not within and not listed:
        return None
    least = next((fix for fix in later if not any(older(other, fix) for other in later)), "")
    return least, True


def _is_within(version: str, events: Sequence[Event], older: Older) -> bool:
    """Whether the last event that is not after the version makes it vulnerable."""

    def order(one: tuple[str, str], other: tuple[str, str]) -> int:
        if "0" in (one[1], other[1]):  # before every version
            return (other[1] == "0") - (one[1] == "0")
        return older(other[1], one[1]) - older(one[1], other[1])

    within = False
    for kind, at in sorted((next(iter(event.items())) for event in events), key=cmp_to_key(order)):
        if kind == "introduced" and (at == "0" or not older(version, at)):
            within = True
        elif (kind == "fixed" and not older(version, at)) or (kind == "last_affected" and older(at, version)):
            within = False
    return within


def _older_package(one: str, other: str) -> bool:
    return Version(one) < Version(other)


def _finding(component: Component, advisory: Mapping[str, Any], fixed_in: str, certain: bool) -> Finding:
    summary = advisory.get("summary") or advisory.get("details", "").strip().partition("\n")[0]
    also = tuple(sorted(advisory.get("aliases", ())))
    return Finding(component, advisory["id"], also, fixed_in, summary, certain)


def _merged(found: Iterable[Finding]) -> Iterator[Finding]:
    """One finding of those that name the same vulnerability of a component, as databases of two publishers do."""
    seen: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for finding in sorted(found, key=lambda f: (f.component.name, f.component.version, f.advisory)):
        of = finding.component
        known = seen[of.ecosystem, of.name, of.version]
        ids = {finding.advisory, *finding.also}
        if not known & ids:
            yield finding
        known |= ids
