"""What the documents of a folder describe: one loader for command line and code location, one list of mistakes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from kdi_assets.documents.loading.errors import (
    AmbiguousStream,
    DefsFolderNotNamed,
    DocumentMistake,
    Mistakes,
    UnknownStream,
)
from kdi_assets.documents.loading.folder import is_ours, read_folder
from kdi_assets.documents.loading.format_files import read_format
from kdi_assets.documents.loading.lakes import (
    lakes_without_client,
    own_lakes,
    paths_beside_hdfs,
    with_other_lakes,
    with_upstream_lakes,
)
from kdi_assets.documents.loading.refined_documents import cycle_mistakes, keep_mistakes, read_refined_table
from kdi_assets.documents.loading.route_groups import link_routes, route_groups, route_mistakes
from kdi_assets.documents.loading.table_paths import BESIDE_REFINED_TABLE, BESIDE_STREAM, TablePaths
from kdi_assets.documents.loading.topic_tables import (
    TopicDocument,
    TopicTablesDocument,
    expand_documents,
    without_topics,
)
from kdi_assets.documents.loading.validation import read_by_name, validate_document
from kdi_assets.documents.loading.yaml_documents import Documents, YamlDocument, file_mistake, sorted_mistakes
from kdi_assets.documents.model.connections.connections import Cluster, Registry
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.stream_fields import References
from kdi_assets.settings import Settings
from kdi_assets.wording import did_you_mean

AnyTable = TypeVar("AnyTable", Stream, RefinedTableSpec, Stream | RefinedTableSpec)

TOPIC_TABLE = "kdi_assets.components.TopicTable"
TOPIC_TABLES = "kdi_assets.components.TopicTables"
KAFKA_CLUSTER = "kdi_assets.components.KafkaCluster"
SCHEMA_REGISTRY = "kdi_assets.components.SchemaRegistry"
KINESIS_TABLE = "kdi_assets.components.KinesisTable"
KINESIS_CONNECTION = "kdi_assets.components.KinesisConnection"
REFINED_TABLE = "kdi_assets.components.RefinedTable"
SERVED_TABLE = "kdi_assets.components.ServedTable"
MAIN = "main"


@dataclass(eq=False)  # hashable: what is made of all documents of a folder is made once
class LoadedFolder:
    """What the documents of a folder describe, by name; a document with a mistake describes nothing.

    Attributes:
        documents: By the name of the stream.
        refined_documents: By the name of the refined table.
        topic_tables: The documents of many topics; their streams are among the others.
        of_other_packages: Whether some documents are components of other packages.
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    refined: dict[str, RefinedTableSpec] = field(default_factory=dict)
    documents: dict[str, YamlDocument] = field(default_factory=dict)
    refined_documents: dict[str, YamlDocument] = field(default_factory=dict)
    topic_tables: dict[str, TopicTablesDocument] = field(default_factory=dict)
    served: dict[str, ServedTableSpec] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    connections: dict[str, KinesisRegion] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)
    mistakes: list[DocumentMistake] = field(default_factory=list)
    of_other_packages: bool = False

    def streams_of(self, name: str) -> list[Stream]:
        """The streams of a document of many topics."""
        documents = self.documents.items()
        return [self.streams[s] for s, d in documents if isinstance(d, TopicDocument) and d.of == name]


def defs_folder() -> Path:
    """The folder in ``KDI_DEFS``; in a checkout, else the demo's documents.

    Raises:
        DefsFolderNotNamed: ``KDI_DEFS`` is not set, and the package is installed from a wheel.
    """
    if folder := os.environ.get("KDI_DEFS"):
        return Path(folder)
    of_the_demo = Path(__file__).parents[2] / "defs"  # not in the wheel
    if not of_the_demo.is_dir():
        raise DefsFolderNotNamed()
    return of_the_demo


def load_streams(folder: Path | None = None) -> Mapping[str, Stream]:
    """The streams of a folder (by default ``defs_folder()``), by name in alphabetical order.

    Raises:
        Mistakes: Documents are wrong; it names every mistake of every document.
        DefsFolderMissing: The folder does not exist.
    """
    return load_folder(folder).streams


def load_folder(folder: Path | None = None) -> LoadedFolder:
    """All that the documents of a folder describe, in alphabetical order; raises like ``load_streams``."""
    return _without_mistakes(read_streams(folder or defs_folder()))


def load_folder_once(folder: Path) -> LoadedFolder:
    """``load_folder``, by ``cached_streams``: Dagster's components of the folder are made from the same read."""
    return _without_mistakes(cached_streams(folder.resolve(), Settings.from_environment().kafka))


def _without_mistakes(loaded: LoadedFolder) -> LoadedFolder:
    if loaded.mistakes:
        raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes))
    streams, refined = dict(sorted(loaded.streams.items())), dict(sorted(loaded.refined.items()))
    return replace(loaded, streams=streams, refined=refined, served=dict(sorted(loaded.served.items())))


def select_streams(streams: Mapping[str, Stream], names: Iterable[str]) -> list[Stream]:
    """The streams with these names, each once, in the order of the names.

    Args:
        streams: By name, as from ``load_streams``.
        names: A table's path, or its last part or the topic if only one stream has it.

    Raises:
        UnknownStream: No stream has the name.
        AmbiguousStream: Several streams have it, and none as its whole path.
    """
    selected = (_select(streams, name, "stream") for name in names)
    return list({stream.name: stream for stream in selected}.values())


def select_refined(tables: Mapping[str, RefinedTableSpec], names: Iterable[str]) -> list[RefinedTableSpec]:
    """The refined tables with these names, each once, in the order of the names.

    Args:
        names: A table's path, or its last part if only one refined table has it.

    Raises:
        UnknownStream, AmbiguousStream: As ``select_streams``.
    """
    selected = (_select(tables, name, "refined table") for name in names)
    return list({table.name: table for table in selected}.values())


def select_table(loaded: LoadedFolder, name: str) -> Stream | RefinedTableSpec:
    """The stream or the refined table with a name; raises like ``select_streams``.

    The last part of a path is looked for among streams first, because tables that are made of a stream's often have
    its name. A topic comes after them, together with refined tables.
    """
    if name not in loaded.refined and any(f"/{stream}".endswith(f"/{name}") for stream in loaded.streams):
        return _select(loaded.streams, name, "stream")
    tables: dict[str, Stream | RefinedTableSpec] = {**loaded.streams, **loaded.refined}
    return _select(tables, name, "stream or refined table")


def _select(tables: Mapping[str, AnyTable], name: str, what: str) -> AnyTable:
    if name in tables:
        return tables[name]
    candidates = [t for t in tables.values() if t.name.endswith(f"/{name}") or getattr(t, "topic", "") == name]
    if len(candidates) > 1:
        raise AmbiguousStream(name=name, candidates=tuple(sorted(t.name for t in candidates)))
    if not candidates:
        raise UnknownStream(name=name, known=tuple(sorted(tables)), what=what)
    return candidates[0]


def read_streams(
    folder: Path,
    *,
    main_servers: str | None = None,
    proposed: Documents | None = None,
    more_topics: Mapping[str, Collection[str]] | None = None,
) -> LoadedFolder:
    """Read every document of a folder.

    Args:
        more_topics: By the name of a document with a pattern: topics that are not in its file yet.
        proposed: Documents that the folder does not hold yet; read after the others.
        main_servers: Bootstrap servers of the cluster ``main``; they replace those of its document, if it has one.
            ``KDI_KAFKA`` by default.

    Raises:
        DefsFolderMissing: The folder does not exist.
    """
    found = read_folder(folder)
    more = proposed or Documents()
    loaded = LoadedFolder(mistakes=[*found.mistakes, *more.mistakes])
    loaded.of_other_packages = not all(map(is_ours, {document.type for document in found.documents}))
    by_type = _by_type([*found.documents, *more.documents], loaded.mistakes)
    _add_connections(by_type, loaded, Settings.from_environment().kafka if main_servers is None else main_servers)
    paths = TablePaths()
    expanded = expand_documents(by_type[TOPIC_TABLES], loaded.mistakes, more_topics or {})
    loaded.topic_tables = expanded.written
    by_type[TOPIC_TABLE] += expanded.documents
    _add_streams(by_type, loaded, paths)
    loaded.mistakes += _shared_consumers(loaded)
    _link_routes(by_type[TOPIC_TABLE], loaded)
    _add_refined_tables(by_type[REFINED_TABLE], loaded, paths)
    loaded.served = _served_tables(by_type[SERVED_TABLE], loaded.mistakes)
    _link_lakes(loaded)
    return loaded


def _served_tables(documents: Sequence[YamlDocument], mistakes: list[DocumentMistake]) -> dict[str, ServedTableSpec]:
    said, right = "{name} is served by the document at {place} already", "another table or schema"
    return read_by_name(ServedTableSpec, documents, mistakes, field="into", said=said, right=right)


def _link_lakes(loaded: LoadedFolder) -> None:
    """Let every table know the lakes of the others, if one has a lake of its own."""
    if not (lakes := own_lakes(loaded.streams, loaded.refined)):
        return
    settings = Settings.from_environment()
    for refused in (lakes_without_client, paths_beside_hdfs):
        loaded.mistakes += refused(loaded.streams, loaded.documents, settings)
        loaded.mistakes += refused(loaded.refined, loaded.refined_documents, settings)
    loaded.streams = with_other_lakes(loaded.streams, lakes)
    loaded.refined = with_upstream_lakes(with_other_lakes(loaded.refined, lakes), lakes)
    loaded.served = {name: replace(table, lake=lakes.get(table.table, "")) for name, table in loaded.served.items()}


def _add_connections(
    by_type: Mapping[str, Sequence[YamlDocument]], loaded: LoadedFolder, main_servers: str | None
) -> None:
    loaded.clusters = read_by_name(Cluster, by_type[KAFKA_CLUSTER], loaded.mistakes)
    loaded.connections = read_by_name(KinesisRegion, by_type[KINESIS_CONNECTION], loaded.mistakes)
    loaded.mistakes += _taken_names(by_type[KINESIS_CONNECTION], by_type[KAFKA_CLUSTER])
    loaded.registries = read_by_name(Registry, by_type[SCHEMA_REGISTRY], loaded.mistakes)
    if main_servers:
        main = loaded.clusters.get(MAIN, Cluster(MAIN, main_servers))
        loaded.clusters[MAIN] = replace(main, bootstrap_servers=main_servers)


def _add_streams(by_type: Mapping[str, Sequence[YamlDocument]], loaded: LoadedFolder, paths: TablePaths) -> None:
    # Names of wrong documents stay known, as None: a stream that refers to one needs no mistake of its own.
    clusters = dict.fromkeys(_names(by_type[KAFKA_CLUSTER])) | loaded.clusters
    connections = dict.fromkeys(_names(by_type[KINESIS_CONNECTION])) | loaded.connections
    registries = dict.fromkeys(_names(by_type[SCHEMA_REGISTRY])) | loaded.registries

    def references(document: YamlDocument) -> References:
        read = partial(read_format, folder=Path(document.file).parent, registries=registries)
        return References(clusters, read, connections)

    for model, documents in ((Stream, by_type[TOPIC_TABLE]), (KinesisStream, by_type[KINESIS_TABLE])):
        for document in documents:
            _add_stream(model, document, loaded, paths, references(document))
    for document in without_topics(loaded.topic_tables.values()):
        found = validate_document(Stream, document, references=references(document))
        loaded.mistakes += found if isinstance(found, list) else []


@lru_cache(maxsize=4)
def cached_streams(folder: Path, main_servers: str) -> LoadedFolder:
    """``read_streams``, once a load of the code location: Dagster loads the components of a folder one by one."""
    return read_streams(folder, main_servers=main_servers)


def _by_type(documents: Iterable[YamlDocument], mistakes: list[DocumentMistake]) -> dict[str, list[YamlDocument]]:
    types = (
        *(TOPIC_TABLE, TOPIC_TABLES, KAFKA_CLUSTER, SCHEMA_REGISTRY),
        *(KINESIS_TABLE, KINESIS_CONNECTION),
        *(REFINED_TABLE, SERVED_TABLE),
    )
    by_type: dict[str, list[YamlDocument]] = {type_: [] for type_ in types}
    for document in documents:
        if document.type in by_type:
            by_type[document.type].append(document)
        elif document.type.startswith("kdi_assets"):  # Dagster reports unknown types of other packages
            message, right = f"there is no {document.type}", did_you_mean(document.type, by_type)
            mistakes.append(file_mistake(document.file, document.lines["type"], "type", message, right))
    return by_type


def _names(documents: Sequence[YamlDocument]) -> set[str]:
    return {str(d.attributes.get("name")) for d in documents if isinstance(d.attributes, dict)}


def _taken_names(connections: Sequence[YamlDocument], clusters: Sequence[YamlDocument]) -> list[DocumentMistake]:
    """Connections with the name of a cluster: reports name both without their kind."""
    taken = {str(d.attributes.get("name")): d.place("name") for d in clusters if isinstance(d.attributes, dict)}
    return [
        document.mistake("name", f"the KafkaCluster at {taken[name]} has the name {name!r}", "rename one of the two")
        for document in connections
        if isinstance(document.attributes, dict) and (name := str(document.attributes.get("name"))) in taken
    ]


def _add_stream(
    model: type[Stream], document: YamlDocument, loaded: LoadedFolder, paths: TablePaths, references: References
) -> None:
    stream = validate_document(model, document, references=references)
    mistakes = stream if isinstance(stream, list) else paths.add(stream.table, document, beside=BESIDE_STREAM)
    if isinstance(stream, Stream) and not mistakes:
        loaded.streams[stream.name], loaded.documents[stream.name] = stream, document
    loaded.mistakes += mistakes


def _shared_consumers(loaded: LoadedFolder) -> Iterator[DocumentMistake]:
    """Tables of one stream that would register one consumer: of two drains at a time, the later one stops the other."""
    first: dict[tuple[str, ...], Stream] = {}
    for stream in loaded.streams.values():
        if isinstance(stream, KinesisStream) and stream.fan_out and stream.fan_out.is_ours:
            consumer, document = stream.fan_out.consumer, loaded.documents[stream.name]
            at = stream.kinesis
            account = at.role_arn.split(":")[4] if at.role_arn else ""
            other = first.setdefault((at.region, at.endpoint, account, stream.topic, consumer), stream)
            if other is not stream:
                message = f"{consumer} is the consumer of {loaded.documents[other.name].place('consumer')} already"
                right = "another app_id if the table is new, or registered: a consumer of your own"
                yield document.mistake("consumer", message, right)


def _add_refined_tables(documents: Sequence[YamlDocument], loaded: LoadedFolder, paths: TablePaths) -> None:
    for document in documents:
        table = read_refined_table(document)
        mistakes = table if isinstance(table, list) else paths.add(table.table, document, beside=BESIDE_REFINED_TABLE)
        if isinstance(table, RefinedTableSpec) and not mistakes:
            loaded.refined[table.name], loaded.refined_documents[table.name] = table, document
        loaded.mistakes += mistakes
    loaded.mistakes += cycle_mistakes(loaded.refined, loaded.refined_documents)
    keeping = {stream.table for stream in loaded.streams.values() if stream.keep_days is not None}
    keeping |= {table.table for table in loaded.refined.values() if table.keep_days is not None}
    loaded.mistakes += keep_mistakes(loaded.refined, loaded.refined_documents, keeping)


def _link_routes(documents: Sequence[YamlDocument], loaded: LoadedFolder) -> None:
    """Link the streams of each route group, and add what they do not agree on to the mistakes."""
    read = [id(document) for document in loaded.documents.values()]
    unread = {str(d.attributes.get("topic")) for d in documents if id(d) not in read and isinstance(d.attributes, dict)}
    for group in route_groups(loaded.streams.values()):
        loaded.mistakes += route_mistakes(group, loaded.documents, complete=group[0].topic not in unread)
        loaded.streams.update({stream.name: stream for stream in link_routes(group)})
