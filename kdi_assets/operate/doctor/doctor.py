"""Runs all examinations in two parallel rounds: those that need no broker, then tables and brokers that answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.loading.yaml_documents import sorted_mistakes
from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.formats.errors import RegistryUnavailable
from kdi_assets.messages.formats.registry.cache import SchemaFiles
from kdi_assets.messages.formats.registry.client import RegistryClient
from kdi_assets.operate.doctor import kafka, kinesis, machine
from kdi_assets.operate.doctor.catalog import catalog
from kdi_assets.operate.doctor.disk import disk, places
from kdi_assets.operate.doctor.engine import driver_host, engine, master_of
from kdi_assets.operate.doctor.finding import Finding, Trouble, Unanswered, Verdict, fine, warning, wrong
from kdi_assets.operate.doctor.followers import followers
from kdi_assets.operate.doctor.instance import dagster
from kdi_assets.operate.doctor.storage import storage
from kdi_assets.operate.doctor.yarn_files import yarn_files
from kdi_assets.operate.monitoring.follower_rows import FollowedTable, announced_streams, kind_of
from kdi_assets.runtime.cluster import runs_here
from kdi_assets.runtime.driver.drivers import running_drivers
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.runtime.yarn import runs_on_yarn
from kdi_assets.settings import Settings
from kdi_assets.streams.announce.status import announcing_cluster
from kdi_assets.wording import counted, kind_in_words

ALONE_SECONDS, BROKERS_SECONDS = 10.0, 15.0
"""Time limit of the examinations of a round."""

REGISTRY_SECONDS = 8.0
"""Less than an examination may take, so that the error is the registry's and not the time limit's."""


def examine(
    settings: Settings,
    loaded: LoadedFolder,
    folder: Path,
    *,
    streams: Sequence[Stream],
    others: Sequence[RefinedTableSpec | ServedTableSpec] = (),
) -> list[Finding]:
    """Examine everything that runs of these tables need.

    Args:
        loaded: The documents in ``folder``.

    Returns:
        At least one finding for every examination; if a cluster does not answer, only that.
    """
    streams = [stream for stream in streams if stream.status != "retired"]  # their topics may be deleted
    announced = announced_streams(streams)
    used = (*(s.cluster for s in streams), *(announcing_cluster(s) for s in announced))
    clusters = {c.name: c for c in used if isinstance(c, Cluster)}
    refined = (table for table in others if isinstance(table, RefinedTableSpec))
    delta: list[Stream | RefinedTableSpec] = [*streams, *refined]
    servers = _of_servers(settings, streams, clusters, in_catalog=delta)
    # A served table has the root of the table that it reads, which is among the others or foreign.
    lakes = tuple(dict.fromkeys([settings.lake, *(t.lake for t in (*streams, *others) if t.lake)]))
    alone = side_by_side([*_of_machine(settings, lakes), *servers], seconds=ALONE_SECONDS)
    silent = {f.of for f in alone if f.examination == "brokers" and f.verdict is not Verdict.OK}
    answering = [cluster for name, cluster in clusters.items() if name not in silent]
    tables = [*others, *(stream for stream in announced if announcing_cluster(stream).name not in silent)]
    second = *_by_brokers(answering, streams, settings.lake), *_of_kinesis(streams, settings)
    by_brokers = side_by_side([*second, *_followers(tables, settings)], seconds=BROKERS_SECONDS)
    room = partial(disk, places(settings, lakes), needed_bytes=kafka.backlog_bytes(by_brokers))
    return [
        *documents(loaded, folder),
        *side_by_side([Examination("disk", "this machine", room)], seconds=ALONE_SECONDS),
        *alone,
        *by_brokers,
    ]


def documents(loaded: LoadedFolder, folder: Path) -> Iterator[Finding]:
    """The mistakes in documents; valid streams and clusters are examined further."""
    of = display_path(folder)
    for mistake in sorted_mistakes(loaded.mistakes):
        yield wrong("documents", of, mistake)
    if not loaded.mistakes and not loaded.streams:
        nothing = Trouble(
            kind="no streams",
            happened=f"{of} has no document that describes a stream.",
            safe="nothing was started; no topic and no table was touched.",
            run="kdi new TOPIC    (it writes a document; or name another folder with --defs or KDI_DEFS)",
        )
        yield warning("documents", of, nothing)
    elif not loaded.mistakes:
        found = f"{_described(loaded)}; kdi check tries their expressions"
        yield fine("documents", of, found, streams=sorted(loaded.streams))


def _described(loaded: LoadedFolder) -> str:
    others = [(len(loaded.refined), "refined table"), (len(loaded.served), "served table")]
    return ", ".join([counted(len(loaded.streams), "stream"), *(counted(n, what) for n, what in others if n)])


def _of_machine(settings: Settings, lakes: Iterable[str]) -> Iterator[Examination]:
    yield Examination("packages", "Python", machine.packages)
    yield Examination("java", "Java", partial(machine.java, settings.home))
    yield Examination("jars", "spark", partial(machine.jars, settings))
    if settings.driver != "own":  # with auto, sessions do without one that is not theirs, and nobody would say so
        for number in running_drivers(settings.home) or ((1,) if settings.driver == "shared" else ()):
            yield Examination("driver", machine.driver_name(number), partial(machine.driver, settings, number))
    if (master := master_of(settings)) and not runs_here(master):
        yield Examination("engine", master, partial(engine, master))
        yield Examination("engine", "spark.driver.host", driver_host)
    if runs_on_yarn(master):
        yield Examination("engine", master, yarn_files)
    yield from (Examination("storage", lake, partial(storage, lake)) for lake in lakes)
    if home := os.environ.get("DAGSTER_HOME"):
        yield Examination("dagster", home, partial(dagster, home))


def _of_servers(
    settings: Settings,
    streams: Sequence[Stream],
    clusters: Mapping[str, Cluster],
    *,
    in_catalog: Sequence[Stream | RefinedTableSpec],
) -> Iterator[Examination]:
    registries = {stream.registry.name: stream.registry for stream in streams if stream.registry}
    for name, described in registries.items():
        yield Examination("registry", name, partial(registry, described, settings.home))
    if settings.catalog:
        look = partial(catalog, settings.catalog, in_catalog, lake=settings.lake)
        yield Examination("catalog", settings.catalog, look)
    for name, cluster in clusters.items():
        yield Examination("brokers", name, partial(kafka.brokers, cluster))


def registry(described: Registry, home: Path) -> Iterator[Finding]:
    """Whether the registry answers; without it, drains use the schemas that are known.

    Raises:
        RegistryAccessRefused, RegistryNotUnderstood, RegistrySettingRefused: It refuses, or is configured wrong.
        EnvironmentVariableMissing: A property of the registry names a variable that is not set.
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
        if not own:
            continue  # it has announcements only
        topics = sorted({stream.topic for stream in own})
        yield Examination("rights", cluster.name, partial(kafka.rights, cluster, topics))
        yield Examination("stream", cluster.name, partial(kafka.streams, own, lake=lake))


def _of_kinesis(streams: Sequence[Stream], settings: Settings) -> Iterator[Examination]:
    of_kinesis = [s for s in streams if isinstance(s.cluster, KinesisRegion)]
    if of_kinesis:
        yield Examination("jars", "kinesis", partial(machine.kinesis_jars, settings, of_kinesis[0].name))
    for region in {s.cluster.name: s.cluster for s in of_kinesis}.values():
        own = [stream for stream in of_kinesis if stream.cluster == region]
        tables = [stream for stream in own if isinstance(stream, KinesisStream)]
        yield Examination("rights", region.name, partial(kinesis.rights, tables))
        yield Examination("stream", region.name, partial(kafka.streams, own, lake=settings.lake))


def _followers(tables: Iterable[FollowedTable], settings: Settings) -> Iterator[Examination]:
    announced: dict[str, list[FollowedTable]] = {}
    for table in tables:
        if isinstance(table, Stream):
            announced.setdefault(announcing_cluster(table).name, []).append(table)
        else:
            yield Examination(kind_of(table).value, table.name, partial(followers, [table], settings))
    for cluster, own in announced.items():  # asked once, not once for each table
        yield Examination(TableKind.ANNOUNCED.value, cluster, partial(followers, own, settings))


@dataclass(frozen=True, slots=True)
class Examination:
    """An examination; an error that ``look`` raises becomes its finding."""

    name: str
    of: str
    look: Callable[[], Iterable[Finding]]


def side_by_side(examinations: Sequence[Examination], *, seconds: float) -> list[Finding]:
    """Run the examinations in parallel; the findings come in the order of the examinations.

    Args:
        seconds: Time limit; an examination that has not ended by then is not awaited.
    """
    started = [(examination, _start(examination)) for examination in examinations]
    wait([future for _, future in started], timeout=seconds)
    return [finding for examination, future in started for finding in _findings(examination, future, seconds)]


def _start(examination: Examination) -> Future[list[Finding]]:
    return start_in_thread(lambda: list(examination.look()), name=f"{examination.name} {examination.of}")


def _findings(examination: Examination, future: Future[list[Finding]], seconds: float) -> list[Finding]:
    name, of = examination.name, examination.of
    if not future.done():
        hangs = Unanswered(
            kind="no answer in time",
            happened=f"{name} of {of}: no answer within {seconds:g} s.",
            safe="the other examinations are complete; nothing was changed.",
            run=f"kdi doctor    (once more; if it repeats, look at {of})",
        )
        return [wrong(name, of, hangs)]
    failure = future.exception()
    if failure is None:
        return future.result()
    if not isinstance(failure, KdiError):
        failure = Trouble(
            kind="examination failed",
            happened=f"{name} of {of} could not be examined: {type(failure).__name__}: {failure}",
            safe="the other examinations are complete.",
            run="kdi status    (if that fails too, its traceback shows where)",
        )
    return [wrong(name, of, failure)]
