"""The locked packages and jars: name, version, hashes, and whether a deployment needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from kdi_assets.runtime.jars import locked_jars

ROOT = Path(__file__).parents[1]
PACKAGES_LOCK = ROOT / "requirements.lock"
DEPLOYED_LOCK = ROOT / "deploy" / "requirements.lock"
CHECKS_LOCK = ROOT / "deploy" / "checks.lock"

Ecosystem = Literal["PyPI", "Maven"]
"""As OSV names them."""
Need = Literal["required", "optional", "excluded"]
"""CycloneDX's scope; excluded: only for the development of this project."""
_NEEDS: Mapping[str, Need] = {
    "spark": "required",
    "build": "required",
    "s3": "optional",
    "kinesis": "optional",
    "broker": "optional",
}
_HASH = re.compile(r"\s+--hash=sha256:([0-9a-f]{64})")


class LockNotRead(Exception):
    """A lock has a line that is no version with hashes."""


@dataclass(frozen=True, slots=True)
class Component:
    """A package or a jar.

    Attributes:
        name: Normalized, or Maven's ``group:artifact``; only the artifact if its jar does not name its group.
        sha256: Of its files: a package has one for each platform and Python version.
        inside: The package that brings it; empty if the lock itself names it.
    """

    ecosystem: Ecosystem
    name: str
    version: str
    sha256: tuple[str, ...]
    need: Need
    inside: str = ""

    @property
    def is_known(self) -> bool:
        """Whether its name is one that databases of vulnerabilities have."""
        return self.ecosystem == "PyPI" or ":" in self.name


def locked_components(*, packages: Path = PACKAGES_LOCK) -> tuple[Component, ...]:
    """Every component of the locks once, ordered by ecosystem, name and version.

    Raises:
        LockNotRead: A lock cannot be read.
    """
    needed = {(name, version) for name, version, _ in _packages(DEPLOYED_LOCK)}
    found = {
        (name, version): Component(
            "PyPI", name, version, hashes, "required" if (name, version) in needed else "excluded"
        )
        for lock in (packages, DEPLOYED_LOCK, CHECKS_LOCK)
        for name, version, hashes in _packages(lock)
    }
    of_jars = [
        Component("Maven", jar.coordinate.rpartition(":")[0], jar.coordinate.rpartition(":")[2], (jar.sha256,),
                  _NEEDS[jar.group])
        for jar in locked_jars()
    ]  # fmt: skip
    return tuple(sorted([*found.values(), *_once(of_jars)], key=lambda c: (c.ecosystem, c.name, c.version)))


def _once(jars: list[Component]) -> Iterator[Component]:
    """Each jar once: two groups may have the same; the stronger need counts."""
    by_version: dict[tuple[str, str], Component] = {}
    for jar in sorted(jars, key=lambda jar: jar.need, reverse=True):  # "required" comes after "optional"
        by_version.setdefault((jar.name, jar.version), jar)
    yield from by_version.values()


def _packages(lock: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, version and hashes of each entry of a lock that uv compiled."""
    entries = re.sub(r"\\\n", " ", lock.read_text()).splitlines()
    for entry in entries:
        if not entry.strip() or entry.lstrip().startswith("#"):
            continue
        text, hashes = _HASH.sub("", entry).strip(), tuple(_HASH.findall(entry))
        try:
            requirement = Requirement(text)
            (pin,) = requirement.specifier
        except (InvalidRequirement, ValueError) as failed:
            raise LockNotRead(f"{lock}: {text!r} is not one version: {failed}") from failed
        if pin.operator != "==" or not hashes:
            raise LockNotRead(f"{lock}: {text!r} has {'no hash' if pin.operator == '==' else 'no exact version'}")
        yield canonicalize_name(requirement.name), pin.version, hashes
