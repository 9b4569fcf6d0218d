"""The streams of a folder: one loader for the command line and the code location, and one list of mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from kdi_assets.config.errors import AmbiguousStream, DocumentMistake, Mistakes, UnknownStream
from kdi_assets.config.folder import read_folder
from kdi_assets.config.format_files import read_format
from kdi_assets.config.route_groups import link_routes, route_groups, route_mistakes
from kdi_assets.config.served_documents import read_served_tables
from kdi_assets.config.validation import validate_document
from kdi_assets.config.yaml_documents import Documents, YamlDocument, file_mistake, sorted_mistakes
from kdi_assets.settings import Settings
from kdi_assets.stream.connections import Cluster, Registry
from kdi_assets.stream.fields import References
from kdi_assets.stream.served_table import ServedTable
from kdi_assets.stream.stream import Stream
from kdi_assets.wording import did_you_mean

ClusterOrRegistry = TypeVar("ClusterOrRegistry", Cluster, Registry)

TOPIC_TABLE = "kdi_assets.components.TopicTable"
KAFKA_CLUSTER = "kdi_assets.components.KafkaCluster"
SCHEMA_REGISTRY = "kdi_assets.components.SchemaRegistry"
SERVED_TABLE = "kdi_assets.components.ServedTable"
MAIN = "main"


@dataclass
class LoadedFolder:
    """What the documents of a folder describe, by name; a document with a mistake describes nothing.

    Attributes:
        documents: By the name of the stream.
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    documents: dict[str, YamlDocument] = field(default_factory=dict)
    served: dict[str, ServedTable] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)
    mistakes: list[DocumentMistake] = field(default_factory=list)


def defs_folder() -> Path:
    """The folder in ``KDI_DEFS``, else the package's own."""
    if folder := os.environ.get("KDI_DEFS"):
        return Path(folder)
    return Path(__file__).parent.parent / "defs"


def load_streams(folder: Path | None = None) -> Mapping[str, Stream]:
    """The streams of a folder (by default ``defs_folder()``), by name in alphabetical order.

    Raises:
        Mistakes: Documents are wrong; it names every mistake of every document.
        DefsFolderMissing: The folder does not exist.
    """
    loaded = read_streams(folder or defs_folder())
    if loaded.mistakes:
        raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes))
    return dict(sorted(loaded.streams.items()))


def load_served(folder: Path | None = None) -> Mapping[str, ServedTable]:
    """The served tables of a folder, by name in alphabetical order; raises like ``load_streams``."""
    loaded = read_streams(folder or defs_folder())
    if loaded.mistakes:
        raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes))
    return dict(sorted(loaded.served.items()))


def select_streams(streams: Mapping[str, Stream], names: Iterable[str]) -> list[Stream]:
    """The streams with these names, each once, in the order of the names.

    Args:
        streams: By name, as from ``load_streams``.
        names: A table's path, or its last part or the topic if only one stream has it.

    Raises:
        UnknownStream: No stream has the name.
        AmbiguousStream: Several streams have it, and none as its whole path.
    """
    selected = (_select(streams, name) for name in names)
    return list({stream.name: stream for stream in selected}.values())


def _select(streams: Mapping[str, Stream], name: str) -> Stream:
    if name in streams:
        return streams[name]
    candidates = [s for s in streams.values() if name == s.topic or s.table.endswith(f"/{name}")]
    if len(candidates) > 1:
        raise AmbiguousStream(name=name, candidates=tuple(sorted(s.name for s in candidates)))
    if not candidates:
        raise UnknownStream(name=name, known=tuple(sorted(streams)))
    return candidates[0]


def read_streams(folder: Path, *, main_servers: str | None = None, proposed: Documents | None = None) -> LoadedFolder:
    """Read every document of a folder.

    Args:
        proposed: Documents that the folder does not hold yet; read after the others.
        main_servers: Bootstrap servers of the cluster ``main``; they replace those of its document, if it has one.
            ``KDI_KAFKA`` by default.

    Raises:
        DefsFolderMissing: The folder does not exist.
    """
    found = read_folder(folder)
    more = proposed or Documents()
    loaded = LoadedFolder(mistakes=[*found.mistakes, *more.mistakes])
    by_type = _by_type([*found.documents, *more.documents], loaded.mistakes)
    loaded.clusters = _read_connections(Cluster, by_type[KAFKA_CLUSTER], loaded.mistakes)
    loaded.registries = _read_connections(Registry, by_type[SCHEMA_REGISTRY], loaded.mistakes)
    if servers := Settings.from_environment().kafka if main_servers is None else main_servers:
        main = loaded.clusters.get(MAIN, Cluster(MAIN, servers))
        loaded.clusters[MAIN] = replace(main, bootstrap_servers=servers)
    # Names of wrong documents stay known, as None: a stream that refers to one needs no mistake of its own.
    clusters = dict.fromkeys(_names(by_type[KAFKA_CLUSTER])) | loaded.clusters
    registries = dict.fromkeys(_names(by_type[SCHEMA_REGISTRY])) | loaded.registries
    _add_streams(by_type[TOPIC_TABLE], loaded, clusters=clusters, registries=registries)
    _link_routes(by_type[TOPIC_TABLE], loaded)
    loaded.served = read_served_tables(by_type[SERVED_TABLE], loaded.mistakes)
    return loaded


@lru_cache(maxsize=4)
def cached_streams(folder: Path, main_servers: str) -> LoadedFolder:
    """``read_streams``, once per process: Dagster loads the components of a folder one by one."""
    return read_streams(folder, main_servers=main_servers)


def _by_type(documents: Iterable[YamlDocument], mistakes: list[DocumentMistake]) -> Mapping[str, list[YamlDocument]]:
    by_type: dict[str, list[YamlDocument]] = {TOPIC_TABLE: [], KAFKA_CLUSTER: [], SCHEMA_REGISTRY: [], SERVED_TABLE: []}
    for document in documents:
        if document.type in by_type:
            by_type[document.type].append(document)
        elif document.type.startswith("kdi_assets"):  # Dagster reports unknown types of other packages
            message, right = f"there is no {document.type}", did_you_mean(document.type, by_type)
            mistakes.append(file_mistake(document.file, document.lines["type"], "type", message, right))
    return by_type


def _names(documents: Sequence[YamlDocument]) -> set[str]:
    return {str(d.attributes.get("name")) for d in documents if isinstance(d.attributes, dict)}


def _read_connections(
    model: type[ClusterOrRegistry], documents: Sequence[YamlDocument], mistakes: list[DocumentMistake]
) -> dict[str, ClusterOrRegistry]:
    """The clusters or registries that the documents describe, by name."""
    found: dict[str, ClusterOrRegistry] = {}
    places: dict[str, str] = {}
    for document in documents:
        connection = validate_document(model, document)
        if isinstance(connection, list):
            mistakes += connection
        elif (name := connection.name) in found:
            message = f"{name!r} is described at {places[name]} already"
            mistakes.append(document.mistake("name", message, "rename or remove one of the two"))
        else:
            found[name], places[name] = connection, document.place("name")
    return found


def _add_streams(
    documents: Sequence[YamlDocument],
    loaded: LoadedFolder,
    *,
    clusters: Mapping[str, Cluster | None],
    registries: Mapping[str, Registry | None],
) -> None:
    paths = _TablePaths()
    for document in documents:
        read = partial(read_format, folder=Path(document.file).parent, registries=registries)
        stream = validate_document(Stream, document, references=References(clusters, read))
        mistakes = stream if isinstance(stream, list) else paths.add(stream.table, document)
        if isinstance(stream, Stream) and not mistakes:
            loaded.streams[stream.name], loaded.documents[stream.name] = stream, document
        loaded.mistakes += mistakes


def _link_routes(documents: Sequence[YamlDocument], loaded: LoadedFolder) -> None:
    """Link the streams of each route group, and add what they do not agree on to the mistakes."""
    read = [id(document) for document in loaded.documents.values()]
    unread = {str(d.attributes.get("topic")) for d in documents if id(d) not in read and isinstance(d.attributes, dict)}
    for group in route_groups(loaded.streams.values()):
        loaded.mistakes += route_mistakes(group, loaded.documents, complete=group[0].topic not in unread)
        loaded.streams.update({stream.name: stream for stream in link_routes(group)})


class _TablePaths:
    """The paths in the lake that tables use; no table may lie at or below a path of another stream."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, table: str, document: YamlDocument) -> list[DocumentMistake]:
        """Reserve the paths of a stream's table and the tables beside it, or return the clash."""
        place = document.place("table")
        names = (f"{table}_dead_letters", f"{table}_ledger", f"{table}_removed")
        own = {table: f"the table of {place}", **dict.fromkeys(names, f"kept for the stream of {place}")}
        for path in own:
            other = next((p for p in (path, *_parents(path)) if p in self._used), self._folders.get(path))
            if other is not None:
                message = f"{path} clashes with {other}, {self._used[other]}"
                return [document.mistake("table", message, "a path that no other table uses")]
        self._used |= own
        self._folders |= dict.fromkeys(_parents(table), table)  # the tables beside it lie in the same folders
        return []


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]
