"""The registry's part: does it answer, and if not, what is known without it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from kdi_assets.connections import SchemaRegistry
from kdi_assets.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.formats.registry.cache import SchemaFiles
from kdi_assets.formats.registry.client import RegistryClient
from kdi_assets.formats.registry.refusals import RegistryUnavailable
from kdi_assets.wording import counted, kind_in_words

LOOK_SECONDS = 8.0
"""Less than an examination may take: that nobody answers is to be told by who was asked."""


def registry(described: SchemaRegistry, home: Path) -> Iterator[Finding]:
    """Whether the registry answers us; while it does not, drains go on with the schemas that are known.

    Raises:
        RegistryAccessRefused, RegistryNotTrusted, RegistryNotUnderstood, RegistrySettingRefused: What is to be mended.
        EnvironmentVariableMissing: A property of the registry is to come from a variable that is not set.
    """
    known = SchemaFiles(home, described).count()
    began = monotonic()
    try:
        types = RegistryClient(described, answer_seconds=LOOK_SECONDS).types()
    except RegistryUnavailable as silent:
        verdict = warning if known else wrong
        found = f"{kind_in_words(silent)}; {counted(known, 'schema')} known"
        yield verdict("registry", described.name, silent, found, known_schemas=known)
        return
    seconds = monotonic() - began
    found = f"{', '.join(types)}, {seconds * 1000:.0f} ms; {counted(known, 'schema')} known"
    yield fine("registry", described.name, found, types=types, latency_seconds=seconds, known_schemas=known)
