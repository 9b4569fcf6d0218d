"""All examinations, in two rounds side by side: what needs nobody else, then what needs brokers that answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from kdi_assets.components.load import Loaded
from kdi_assets.doctor import kafka, machine
from kdi_assets.doctor.disk import disk
from kdi_assets.doctor.documents import documents
from kdi_assets.doctor.finding import Finding, Verdict
from kdi_assets.doctor.instance import dagster
from kdi_assets.doctor.places import places
from kdi_assets.doctor.registry import registry
from kdi_assets.doctor.side_by_side import Examination, side_by_side
from kdi_assets.doctor.storage import storage
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, Stream

ALONE_SECONDS, BROKERS_SECONDS = 10.0, 15.0
"""How long the slowest examination of a round may take."""


def examine(
    settings: Settings,
    loaded: Loaded,
    folder: Path,
    *,
    streams: Sequence[Stream],
    environment: Mapping[str, str] = os.environ,
) -> list[Finding]:
    """Examine everything that a drain of these streams needs.

    Args:
        loaded: What the documents in ``folder`` say.

    Returns:
        At least one finding of every examination; of a cluster whose brokers do not answer, that alone.
    """
    streams = [stream for stream in streams if stream.status != "retired"]  # their topics may be gone
    clusters = {stream.cluster.name: stream.cluster for stream in streams}
    registries = {stream.registry.name: stream.registry for stream in streams if stream.registry}
    said = list(documents(loaded, folder))
    looks = [Examination("registry", name, partial(registry, r, settings.home)) for name, r in registries.items()]
    looks = [*_alone(settings, environment), *looks, *map(_brokers, clusters.values())]
    alone = side_by_side(looks, seconds=ALONE_SECONDS)
    silent = {f.of for f in alone if f.examination == "brokers" and f.verdict is not Verdict.OK}
    answering = [cluster for name, cluster in clusters.items() if name not in silent]
    by_brokers = side_by_side(list(_by_brokers(answering, streams, settings.lake)), seconds=BROKERS_SECONDS)
    room = side_by_side([_disk(settings, environment, by_brokers)], seconds=ALONE_SECONDS)
    return [*said, *room, *alone, *by_brokers]


def _alone(settings: Settings, environment: Mapping[str, str]) -> Iterator[Examination]:
    yield Examination("packages", "Python", machine.packages)
    yield Examination("java", "Java", partial(machine.java, settings.home, environment=environment))
    yield Examination("jars", "spark", partial(machine.jars, settings.home / "jars"))
    if settings.driver == "shared":
        yield Examination("driver", "shared", partial(machine.driver, settings))
    yield Examination("storage", settings.lake, partial(storage, settings.lake, environment=environment))
    if home := environment.get("DAGSTER_HOME"):
        yield Examination("dagster", home, partial(dagster, home))


def _brokers(cluster: KafkaCluster) -> Examination:
    return Examination("brokers", cluster.name, partial(kafka.brokers, cluster))


def _by_brokers(clusters: Iterable[KafkaCluster], streams: Sequence[Stream], lake: str) -> Iterator[Examination]:
    for cluster in clusters:
        own = [stream for stream in streams if stream.cluster.name == cluster.name]
        topics = sorted({stream.topic for stream in own})
        yield Examination("rights", cluster.name, partial(kafka.rights, cluster, topics))
        yield Examination("stream", cluster.name, partial(kafka.streams, cluster, own, lake=lake))


def _disk(settings: Settings, environment: Mapping[str, str], seen: Sequence[Finding]) -> Examination:
    needed = kafka.waiting_bytes(seen)
    return Examination("disk", "this machine", lambda: disk(places(settings, environment), needed_bytes=needed))
