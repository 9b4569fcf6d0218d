"""The streams of a folder: one loader for the command line and the code location, and one list of mistakes.

What is right in the documents is built into clusters, registries and streams; the rest is collected.
"""

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
from kdi_assets.config.route_groups import disagreements, linked, route_groups
from kdi_assets.config.validation import validated
from kdi_assets.config.yaml_documents import Documents, YamlDocument, in_order, mistake_in
from kdi_assets.settings import Settings
from kdi_assets.stream.connections import Cluster, Registry
from kdi_assets.stream.fields import References
from kdi_assets.stream.stream import Stream
from kdi_assets.wording import did_you_mean

Named = TypeVar("Named", Cluster, Registry)

TOPIC_TABLE = "kdi_assets.components.TopicTable"
KAFKA_CLUSTER = "kdi_assets.components.KafkaCluster"
SCHEMA_REGISTRY = "kdi_assets.components.SchemaRegistry"
MAIN = "main"


@dataclass
class Loaded:
    """What a folder's documents say.

    Attributes:
        streams: By name.
        documents: The document of every stream, by the stream's name.
        clusters: By name.
        registries: By name.
        mistakes: All of them; a document that holds one makes no stream, no cluster and no registry.
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    documents: dict[str, YamlDocument] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)
    mistakes: list[DocumentMistake] = field(default_factory=list)


def defs_folder() -> Path:
    """The folder that ``KDI_DEFS`` names, else the package's own."""
    if folder := os.environ.get("KDI_DEFS"):
        return Path(folder)
    return Path(__file__).parent.parent / "defs"


def load_streams(folder: Path | None = None) -> Mapping[str, Stream]:
    """The streams of a folder, by name in alphabetical order; of ``defs_folder()`` if none is given.

    Raises:
        Mistakes: Documents are wrong; it names every mistake of every document.
        DefsFolderMissing: There is no such folder.
    """
    loaded = read_streams(folder or defs_folder())
    if loaded.mistakes:
        raise Mistakes(mistakes=in_order(loaded.mistakes))
    return dict(sorted(loaded.streams.items()))


def select_streams(streams: Mapping[str, Stream], names: Iterable[str]) -> list[Stream]:
    """The streams that are meant, each once, in the order of the names.

    Args:
        streams: By name, as ``load_streams`` answers them.
        names: A table's path, or its last part, or a topic, where that is unique.

    Raises:
        UnknownStream: A name fits no stream.
        AmbiguousStream: A name fits several, none of them by its whole path.
    """
    selected = {stream.name: stream for stream in (_select(streams, name) for name in names)}
    return list(selected.values())


def _select(streams: Mapping[str, Stream], name: str) -> Stream:
    if name in streams:
        return streams[name]
    fitting = [s for s in streams.values() if name == s.topic or s.table.endswith(f"/{name}")]
    if len(fitting) > 1:
        raise AmbiguousStream(name=name, candidates=tuple(sorted(s.name for s in fitting)))
    if not fitting:
        raise UnknownStream(name=name, known=tuple(sorted(streams)))
    return fitting[0]


def read_streams(folder: Path, *, main_servers: str | None = None, proposed: Documents | None = None) -> Loaded:
    """Read every document of a folder.

    Args:
        folder: Where the documents lie.
        proposed: Documents that are not there yet, to be read as the last ones.
        main_servers: Bootstrap servers of the cluster ``main``, ahead of its document and in its place where there is
            none; ``KDI_KAFKA`` by default.

    Raises:
        DefsFolderMissing: There is no such folder.
    """
    found = read_folder(folder)
    more = proposed or Documents()
    loaded = Loaded(mistakes=[*found.mistakes, *more.mistakes])
    known = _by_type([*found.documents, *more.documents], loaded.mistakes)
    loaded.clusters = _named(Cluster, known[KAFKA_CLUSTER], loaded.mistakes)
    loaded.registries = _named(Registry, known[SCHEMA_REGISTRY], loaded.mistakes)
    if servers := Settings.from_environment().kafka if main_servers is None else main_servers:
        main = loaded.clusters.get(MAIN, Cluster(MAIN, servers))
        loaded.clusters[MAIN] = replace(main, bootstrap_servers=servers)
    clusters = dict.fromkeys(_names(known[KAFKA_CLUSTER])) | loaded.clusters
    registries = dict.fromkeys(_names(known[SCHEMA_REGISTRY])) | loaded.registries
    _add_streams(known[TOPIC_TABLE], loaded, clusters=clusters, registries=registries)
    _link_routes(known[TOPIC_TABLE], loaded)
    return loaded


@lru_cache(maxsize=4)
def read_once(folder: Path, main_servers: str) -> Loaded:
    """A folder, for components that Dagster loads one by one; read once in a process."""
    return read_streams(folder, main_servers=main_servers)


def _by_type(documents: Iterable[YamlDocument], mistakes: list[DocumentMistake]) -> Mapping[str, list[YamlDocument]]:
    known: dict[str, list[YamlDocument]] = {TOPIC_TABLE: [], KAFKA_CLUSTER: [], SCHEMA_REGISTRY: []}
    for document in documents:
        if document.type in known:
            known[document.type].append(document)
        elif document.type.startswith("kdi_assets"):  # other people's types are Dagster's to judge
            message = f"there is no {document.type}"
            right = did_you_mean(document.type, known)
            mistakes.append(mistake_in(document.file, document.lines["type"], "type", message, right))
    return known


def _names(documents: Sequence[YamlDocument]) -> set[str]:
    return {str(d.attributes.get("name")) for d in documents if isinstance(d.attributes, dict)}


def _named(of: type[Named], documents: Sequence[YamlDocument], mistakes: list[DocumentMistake]) -> dict[str, Named]:
    """What the documents of one type describe, by name."""
    found: dict[str, Named] = {}
    places: dict[str, str] = {}
    for document in documents:
        described = validated(of, document)
        if isinstance(described, list):
            mistakes += described
        elif (name := described.name) in found:
            said = f"{name!r} is described at {places[name]} already"
            mistakes.append(document.mistake("name", said, "rename or remove one of the two"))
        else:
            found[name], places[name] = described, _place(document, "name")
    return found


def _place(document: YamlDocument, attribute: str) -> str:
    return f"{document.file}:{document.line_of(attribute)}"


def _add_streams(
    documents: Sequence[YamlDocument],
    loaded: Loaded,
    *,
    clusters: Mapping[str, Cluster | None],
    registries: Mapping[str, Registry | None],
) -> None:
    paths = _Paths()
    for document in documents:
        reads = partial(read_format, folder=Path(document.file).parent, registries=registries)
        stream = validated(Stream, document, references=References(clusters, reads))
        mistakes = stream if isinstance(stream, list) else paths.take(stream.table, document)
        if isinstance(stream, Stream) and not mistakes:
            loaded.streams[stream.name], loaded.documents[stream.name] = stream, document
        loaded.mistakes += mistakes


def _link_routes(documents: Sequence[YamlDocument], loaded: Loaded) -> None:
    """Tell streams that share a topic of each other, and note what they do not agree on."""
    read = [id(document) for document in loaded.documents.values()]
    unread = {str(d.attributes.get("topic")) for d in documents if id(d) not in read and isinstance(d.attributes, dict)}
    for group in route_groups(loaded.streams.values()):
        loaded.mistakes += disagreements(group, loaded.documents, whole=group[0].topic not in unread)
        loaded.streams.update({stream.name: stream for stream in linked(group)})


class _Paths:
    """Paths in the lake that are taken, and by whom: no table may lie in another's way."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def take(self, table: str, document: YamlDocument) -> list[DocumentMistake]:
        """Note a stream's table and the tables beside it, or tell what is in their way."""
        place = _place(document, "table")
        names = (f"{table}_dead_letters", f"{table}_ledger", f"{table}_removed")
        beside = dict.fromkeys(names, f"kept for the stream of {place}")
        own = {table: f"the table of {place}", **beside}
        for path in own:
            there = next((p for p in (path, *_above(path)) if p in self._taken), self._folders.get(path))
            if there is not None:
                message = f"{path} clashes with {there}, {self._taken[there]}"
                return [document.mistake("table", message, "a path that is in no other's way")]
        self._taken |= own
        self._folders |= dict.fromkeys(_above(table), table)  # those beside it lie in the same folder
        return []


def _above(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]
