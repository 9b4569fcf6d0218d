"""All examinations, in two rounds side by side: what needs nobody else, then what needs brokers that answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from kdi_assets.config.folder import display_path
from kdi_assets.config.loader import LoadedFolder
from kdi_assets.config.yaml_documents import sorted_mistakes
from kdi_assets.doctor import kafka, machine
from kdi_assets.doctor.disk import disk, places
from kdi_assets.doctor.finding import Finding, Trouble, Verdict, fine, warning, wrong
from kdi_assets.doctor.instance import dagster
from kdi_assets.doctor.side_by_side import Examination, side_by_side
from kdi_assets.doctor.storage import storage
from kdi_assets.formats.registry.cache import SchemaFiles
from kdi_assets.formats.registry.client import RegistryClient
from kdi_assets.formats.registry.errors import RegistryUnavailable
from kdi_assets.settings import Settings
from kdi_assets.stream.connections import Registry
from kdi_assets.stream.stream import Cluster, Stream
from kdi_assets.wording import counted, kind_in_words

ALONE_SECONDS, BROKERS_SECONDS = 10.0, 15.0
"""How long the slowest examination of a round may take."""

REGISTRY_SECONDS = 8.0
"""Less than an examination may take: that nobody answers is to be told by who was asked."""


def examine(settings: Settings, loaded: LoadedFolder, folder: Path, *, streams: Sequence[Stream]) -> list[Finding]:
    """Examine everything that a drain of these streams needs.

    Args:
        loaded: What the documents in ``folder`` say.

    Returns:
        At least one finding of every examination; of a cluster whose brokers do not answer, that alone.
    """
    streams = [stream for stream in streams if stream.status != "retired"]  # their topics may be gone
    clusters = {stream.cluster.name: stream.cluster for stream in streams}
    said = list(documents(loaded, folder))
    alone = side_by_side([*_of_machine(settings), *_of_servers(settings, streams, clusters)], seconds=ALONE_SECONDS)
    silent = {f.of for f in alone if f.examination == "brokers" and f.verdict is not Verdict.OK}
    answering = [cluster for name, cluster in clusters.items() if name not in silent]
    by_brokers = side_by_side(list(_by_brokers(answering, streams, settings.lake)), seconds=BROKERS_SECONDS)
    room = partial(disk, places(settings), needed_bytes=kafka.waiting_bytes(by_brokers))
    return [
        *said,
        *side_by_side([Examination("disk", "this machine", room)], seconds=ALONE_SECONDS),
        *alone,
        *by_brokers,
    ]


def documents(loaded: LoadedFolder, folder: Path) -> Iterator[Finding]:
    """The mistakes of every document; streams and clusters without one are examined further."""
    of = display_path(folder)
    for mistake in sorted_mistakes(loaded.mistakes):
        yield wrong("documents", of, mistake)
    if not loaded.mistakes and not loaded.streams:
        nothing = Trouble(
            kind="no streams",
            happened=f"{of} has no document that describes a stream.",
            safe="nothing was started; no topic and no table was touched.",
            run="add a document (docs/streams.md), or name another folder with --defs or KDI_DEFS",
        )
        yield warning("documents", of, nothing)
    elif not loaded.mistakes:
        found = f"{counted(len(loaded.streams), 'stream')}; expressions are for kdi check"
        yield fine("documents", of, found, streams=sorted(loaded.streams))


def _of_machine(settings: Settings) -> Iterator[Examination]:
    yield Examination("packages", "Python", machine.packages)
    yield Examination("java", "Java", partial(machine.java, settings.home))
    yield Examination("jars", "spark", partial(machine.jars, settings.home / "jars"))
    if settings.driver == "shared":
        yield Examination("driver", "shared", partial(machine.driver, settings))
    yield Examination("storage", settings.lake, partial(storage, settings.lake))
    if home := os.environ.get("DAGSTER_HOME"):
        yield Examination("dagster", home, partial(dagster, home))


def _of_servers(
    settings: Settings, streams: Iterable[Stream], clusters: Mapping[str, Cluster]
) -> Iterator[Examination]:
    registries = {stream.registry.name: stream.registry for stream in streams if stream.registry}
    for name, described in registries.items():
        yield Examination("registry", name, partial(registry, described, settings.home))
    for name, cluster in clusters.items():
        yield Examination("brokers", name, partial(kafka.brokers, cluster))


def registry(described: Registry, home: Path) -> Iterator[Finding]:
    """Whether the registry answers us; while it does not, drains go on with the schemas that are known.

    Raises:
        RegistryAccessRefused, RegistryNotUnderstood, RegistrySettingRefused: What is to be mended.
        EnvironmentVariableMissing: A property of the registry is to come from a variable that is not set.
    """
    known = SchemaFiles(home, described).count()
    began = monotonic()
    try:
        types = RegistryClient(described, answer_seconds=REGISTRY_SECONDS).types()
    except RegistryUnavailable as silent:
        verdict = warning if known else wrong
        found = f"{kind_in_words(silent)}; {counted(known, 'schema')} known"
        yield verdict("registry", described.name, silent, found, known_schemas=known)
        return
    seconds = monotonic() - began
    found = f"{', '.join(types)}, {seconds * 1000:.0f} ms; {counted(known, 'schema')} known"
    yield fine("registry", described.name, found, types=types, latency_seconds=seconds, known_schemas=known)


def _by_brokers(clusters: Iterable[Cluster], streams: Sequence[Stream], lake: str) -> Iterator[Examination]:
    for cluster in clusters:
        own = [stream for stream in streams if stream.cluster.name == cluster.name]
        topics = sorted({stream.topic for stream in own})
        yield Examination("rights", cluster.name, partial(kafka.rights, cluster, topics))
        yield Examination("stream", cluster.name, partial(kafka.streams, cluster, own, lake=lake))
