"""From the documents of a folder to clusters, registries and streams: what is right is built, the rest is collected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from kdi_assets.components.cluster_fields import KafkaClusterFields
from kdi_assets.components.documents import Document, Documents, mistake_in
from kdi_assets.components.explain import AnyFields, validated
from kdi_assets.components.fields import TopicTableFields
from kdi_assets.components.folder import read_folder
from kdi_assets.components.mistakes import DocumentMistake, did_you_mean
from kdi_assets.components.registry_fields import SchemaRegistryFields
from kdi_assets.components.route_groups import disagreements, linked, route_groups
from kdi_assets.components.schema_file_mistake import SchemaFileMistake
from kdi_assets.message_format import SchemaRegistry
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, Stream

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
    documents: dict[str, Document] = field(default_factory=dict)
    clusters: dict[str, KafkaCluster] = field(default_factory=dict)
    registries: dict[str, SchemaRegistry] = field(default_factory=dict)
    mistakes: list[DocumentMistake] = field(default_factory=list)


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
    servers = Settings.from_environment().kafka if main_servers is None else main_servers
    _add_clusters(known[KAFKA_CLUSTER], loaded, main_servers=servers)
    _add_registries(known[SCHEMA_REGISTRY], loaded)
    wrong = _Wrong(
        clusters=_names(known[KAFKA_CLUSTER]) - loaded.clusters.keys(),
        registries=_names(known[SCHEMA_REGISTRY]) - loaded.registries.keys(),
    )
    _add_streams(known[TOPIC_TABLE], loaded, wrong=wrong)
    _link_routes(known[TOPIC_TABLE], loaded)
    return loaded


@lru_cache(maxsize=4)
def read_once(folder: Path, main_servers: str) -> Loaded:
    """A folder, for components that Dagster loads one by one; read once in a process."""
    return read_streams(folder, main_servers=main_servers)


def _by_type(documents: Iterable[Document], mistakes: list[DocumentMistake]) -> Mapping[str, list[Document]]:
    known: dict[str, list[Document]] = {TOPIC_TABLE: [], KAFKA_CLUSTER: [], SCHEMA_REGISTRY: []}
    for document in documents:
        if document.type in known:
            known[document.type].append(document)
        elif document.type.startswith("kdi_assets"):  # other people's types are Dagster's to judge
            message = f"there is no {document.type}"
            right = did_you_mean(document.type, known)
            mistakes.append(mistake_in(document.file, document.lines["type"], "type", message, right))
    return known


def _names(documents: Sequence[Document]) -> set[str]:
    return {str(d.attributes.get("name")) for d in documents if isinstance(d.attributes, dict)}


def _right(model: type[AnyFields], document: Document, mistakes: list[DocumentMistake]) -> AnyFields | None:
    outcome = validated(model, document)
    if isinstance(outcome, BaseModel):
        return outcome
    mistakes += outcome
    return None


def _add_clusters(documents: Sequence[Document], loaded: Loaded, *, main_servers: str) -> None:
    places = _Names(loaded.mistakes)
    for document in documents:
        fields = _right(KafkaClusterFields, document, loaded.mistakes)
        if fields is None or not places.take(fields.name, document):
            continue
        servers = main_servers if fields.name == MAIN else ""
        loaded.clusters[fields.name] = fields.kafka_cluster(bootstrap_servers=servers)
    if main_servers and MAIN not in loaded.clusters:
        loaded.clusters[MAIN] = KafkaCluster(MAIN, main_servers)


def _add_registries(documents: Sequence[Document], loaded: Loaded) -> None:
    places = _Names(loaded.mistakes)
    for document in documents:
        fields = _right(SchemaRegistryFields, document, loaded.mistakes)
        if fields is not None and places.take(fields.name, document):
            loaded.registries[fields.name] = fields.schema_registry()


def _place(document: Document, attribute: str) -> str:
    return f"{document.file}:{document.line_of(attribute)}"


def _add_streams(documents: Sequence[Document], loaded: Loaded, *, wrong: _Wrong) -> None:
    paths = _Paths()
    for document in documents:
        fields = _right(TopicTableFields, document, loaded.mistakes)
        if fields is None:
            continue
        mistakes = list(paths.take(fields.table, document))
        # A name whose own document is wrong has its mistake in the list already.
        if fields.cluster not in loaded.clusters.keys() | wrong.clusters:
            mistakes.append(unknown_cluster(fields.cluster, document, loaded.clusters.keys() | wrong.clusters))
        if fields.registry and fields.registry not in loaded.registries.keys() | wrong.registries:
            known = loaded.registries.keys() | wrong.registries
            mistakes.append(unknown_registry(fields, document, known))
        if fields.cluster in loaded.clusters and fields.registry in {"", *loaded.registries} and not mistakes:
            cluster, registry = loaded.clusters[fields.cluster], loaded.registries.get(fields.registry)
            try:
                stream = fields.stream(cluster, registry, folder=Path(document.file).parent)
                loaded.streams[fields.table], loaded.documents[fields.table] = stream, document
            except SchemaFileMistake as unread:
                mistakes.append(document.mistake(unread.field, unread.message, unread.right))
        loaded.mistakes += mistakes


def _link_routes(documents: Sequence[Document], loaded: Loaded) -> None:
    """Tell streams that share a topic of each other, and note what they do not agree on."""
    read = [id(document) for document in loaded.documents.values()]
    unread = {str(d.attributes.get("topic")) for d in documents if id(d) not in read and isinstance(d.attributes, dict)}
    for group in route_groups(loaded.streams.values()):
        loaded.mistakes += disagreements(group, loaded.documents, whole=group[0].topic not in unread)
        loaded.streams.update({stream.name: stream for stream in linked(group)})


def unknown_cluster(name: str, document: Document, known: Collection[str]) -> DocumentMistake:
    """A stream that names a cluster which no document describes."""
    right = did_you_mean(name, known) if known else f"add one, or set KDI_KAFKA for {MAIN}"
    return document.mistake("cluster", f"no KafkaCluster document is named {name!r}", right)


def unknown_registry(fields: TopicTableFields, document: Document, known: Collection[str]) -> DocumentMistake:
    """A stream that names a registry which no document describes."""
    right = did_you_mean(fields.registry, known) if known else "add one"
    said = f"no SchemaRegistry document is named {fields.registry!r}"
    return document.mistake(f"format.{fields.message_format.name}.registry", said, right)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Names whose documents hold mistakes: to a stream that names one, nothing more is to be said."""

    clusters: set[str]
    registries: set[str]


class _Names:
    """Names that documents of one type have taken, and where."""

    def __init__(self, mistakes: list[DocumentMistake]) -> None:
        self._places: dict[str, str] = {}
        self._mistakes = mistakes

    def take(self, name: str, document: Document) -> bool:
        """Whether the name was free; note the mistake where it was not."""
        if name not in self._places:
            self._places[name] = _place(document, "name")
            return True
        message = f"{name!r} is described at {self._places[name]} already"
        self._mistakes.append(document.mistake("name", message, "rename or remove one of the two"))
        return False


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
