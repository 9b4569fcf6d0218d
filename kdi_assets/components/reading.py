"""From the documents of a folder to clusters and streams: what is right is built, what is wrong is collected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from kdi_assets.components.documents import Document, mistake_in
from kdi_assets.components.explain import AnyFields, validated
from kdi_assets.components.fields import KafkaClusterFields, TopicTableFields
from kdi_assets.components.folder import read_folder
from kdi_assets.components.mistakes import DocumentMistake, did_you_mean
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, Stream

TOPIC_TABLE = "kdi_assets.components.TopicTable"
KAFKA_CLUSTER = "kdi_assets.components.KafkaCluster"
MAIN = "main"


@dataclass
class Loaded:
    """What a folder's documents say.

    Attributes:
        streams: By name.
        documents: The document of every stream, by the stream's name.
        clusters: By name.
        mistakes: All of them; a document that holds one makes no stream and no cluster.
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    clusters: dict[str, KafkaCluster] = field(default_factory=dict)
    mistakes: list[DocumentMistake] = field(default_factory=list)


def read_streams(folder: Path, *, main_servers: str | None = None) -> Loaded:
    """Read every document of a folder.

    Args:
        folder: Where the documents lie.
        main_servers: Bootstrap servers of the cluster ``main``, ahead of its document and in its place where there is
            none; ``KDI_KAFKA`` by default.

    Raises:
        DefsFolderMissing: There is no such folder.
    """
    found = read_folder(folder)
    loaded = Loaded(mistakes=found.mistakes)
    known = _by_type(found.documents, loaded.mistakes)
    servers = Settings.from_environment().kafka if main_servers is None else main_servers
    _add_clusters(known[KAFKA_CLUSTER], loaded, main_servers=servers)
    _add_streams(known[TOPIC_TABLE], loaded, wrong_clusters=_names(known[KAFKA_CLUSTER]) - loaded.clusters.keys())
    return loaded


@lru_cache(maxsize=4)
def clusters_of(folder: Path, main_servers: str) -> Mapping[str, KafkaCluster]:
    """The clusters of a folder, for components that Dagster loads one by one; read once in a process."""
    return read_streams(folder, main_servers=main_servers).clusters


def _by_type(documents: Iterable[Document], mistakes: list[DocumentMistake]) -> Mapping[str, list[Document]]:
    known: dict[str, list[Document]] = {TOPIC_TABLE: [], KAFKA_CLUSTER: []}
    for document in documents:
        if document.type in known:
            known[document.type].append(document)
        elif document.type.startswith("kdi_assets"):  # other people's types are Dagster's to judge
            message = f"there is no {document.type}"
            right = did_you_mean(document.type, known)
            mistakes.append(mistake_in(document.file, document.lines["type"], "type", message, right))
    return known


def _names(clusters: Sequence[Document]) -> set[str]:
    return {str(d.attributes.get("name")) for d in clusters if isinstance(d.attributes, dict)}


def _right(model: type[AnyFields], document: Document, mistakes: list[DocumentMistake]) -> AnyFields | None:
    outcome = validated(model, document)
    if isinstance(outcome, BaseModel):
        return outcome
    mistakes += outcome
    return None


def _add_clusters(documents: Sequence[Document], loaded: Loaded, *, main_servers: str) -> None:
    places: dict[str, str] = {}
    for document in documents:
        fields = _right(KafkaClusterFields, document, loaded.mistakes)
        if fields is None:
            continue
        if fields.name in places:
            message = f"{fields.name!r} is described at {places[fields.name]} already"
            loaded.mistakes.append(document.mistake("name", message, "rename or remove one of the two"))
            continue
        places[fields.name] = _place(document, "name")
        servers = main_servers if fields.name == MAIN else ""
        loaded.clusters[fields.name] = fields.kafka_cluster(bootstrap_servers=servers)
    if main_servers and MAIN not in loaded.clusters:
        loaded.clusters[MAIN] = KafkaCluster(MAIN, main_servers)


def _place(document: Document, attribute: str) -> str:
    return f"{document.file}:{document.line_of(attribute)}"


def _add_streams(documents: Sequence[Document], loaded: Loaded, *, wrong_clusters: set[str]) -> None:
    paths = _Paths()
    for document in documents:
        fields = _right(TopicTableFields, document, loaded.mistakes)
        if fields is None:
            continue
        mistakes = list(paths.take(fields.table, document))
        cluster = loaded.clusters.get(fields.cluster)
        if cluster is None and fields.cluster not in wrong_clusters:  # a wrong one has its mistake in the list already
            mistakes.append(unknown_cluster(fields.cluster, document, loaded.clusters.keys() | wrong_clusters))
        loaded.mistakes += mistakes
        if cluster and not mistakes:
            loaded.streams[fields.table] = fields.stream(cluster)
            loaded.documents[fields.table] = document


def unknown_cluster(name: str, document: Document, known: Collection[str]) -> DocumentMistake:
    """A stream that names a cluster which no document describes."""
    right = did_you_mean(name, known) if known else f"add one, or set KDI_KAFKA for {MAIN}"
    return document.mistake("cluster", f"no KafkaCluster document is named {name!r}", right)


class _Paths:
    """Paths in the lake that are taken, and by whom: no table may lie in another's way."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def take(self, table: str, document: Document) -> Iterator[DocumentMistake]:
        """Note a stream's table and the tables beside it, and tell what was there already."""
        place = _place(document, "table")
        beside = (f"{table}_dead_letters", f"{table}_ledger")
        if table in self._taken:
            yield document.mistake(
                "table", f"{table} is {self._taken[table]} already", "rename or remove one of the two"
            )
            return
        above = [str(parent) for parent in PurePosixPath(table).parents][:-1]
        for path in [path for path in (*beside, *above) if path in self._taken]:
            message = f"{table} clashes with {path}, {self._taken[path]}"
            yield document.mistake("table", message, "a path that is in no other's way")
        if table in self._folders:
            message = f"{table} would hold {self._folders[table]}"
            yield document.mistake("table", message, "a path that is in no other's way")
        self._taken[table] = f"the table of {place}"
        self._taken |= {path: f"kept for the stream of {place}" for path in beside}
        self._folders |= {folder: f"{table}, the table of {place}" for folder in above}
