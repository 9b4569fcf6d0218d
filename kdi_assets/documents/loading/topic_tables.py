"""A document of many topics becomes a document for each of them; everything after that knows streams only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.loading.pinned_topics import pin_file, read_pins
from kdi_assets.documents.loading.validation import json_schema, validate_document
from kdi_assets.documents.loading.yaml_documents import YamlDocument, file_mistake
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.topic_tables import OF_ONE_TABLE, TopicTablesSpec

if TYPE_CHECKING:
    from kdi_assets.documents.loading.errors import DocumentMistake

OWN = tuple(TopicTablesSpec.__dataclass_fields__)
NO_TOPIC = "no_topic_yet"
"""The topic that the shared fields are checked with while a pattern has no pinned topic."""


@dataclass(frozen=True)
class TopicDocument(YamlDocument):
    """What a document of many topics says of one topic.

    Attributes:
        of: The name of the written document.
        topic: The topic.
        topic_path: Where the written document has it.
        own: The fields that come from the topic's exception.
    """

    of: str = ""
    topic: str = ""
    topic_path: str = "topics"
    own: frozenset[str] = frozenset()

    def where(self, attribute: str) -> tuple[str, int]:
        return super().where(self._written(attribute))

    def place(self, attribute: str) -> str:
        return f"{super().place(attribute)} (topic {self.topic})"

    def mistake(self, attribute: str, message: str, right: str) -> DocumentMistake:
        found = file_mistake(*self.where(attribute), self._written(attribute), message, right)
        found.topics = () if self.topic == NO_TOPIC else (self.topic,)
        return found

    def _written(self, attribute: str) -> str:
        """The path of an attribute in the written document."""
        first = attribute.partition(".")[0]
        if first in self.own:
            return f"exceptions.{self.topic}.{attribute}"
        return self.topic_path if attribute == "topic" else attribute


@dataclass(frozen=True)
class TopicTablesDocument:
    """A document of many topics that has no mistake of its own.

    Attributes:
        pins: The file of the topics that its pattern found; ``None`` for a list.
        topics: With a table each, in the order of list or file.
    """

    spec: TopicTablesSpec
    document: YamlDocument
    pins: Path | None
    topics: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def cluster(self) -> str:
        """The name of the cluster that the topics share."""
        attributes = self.document.attributes
        return str(attributes.get("cluster", "main")) if isinstance(attributes, dict) else "main"


@dataclass
class ExpandedDocuments:
    """What documents of many topics become.

    Attributes:
        written: By name.
        documents: One for each topic.
    """

    written: dict[str, TopicTablesDocument] = field(default_factory=dict)
    documents: list[YamlDocument] = field(default_factory=list)


def expand_documents(
    written: Iterable[YamlDocument], mistakes: list[DocumentMistake], more: Mapping[str, Collection[str]]
) -> ExpandedDocuments:
    """A document for each topic of each document; what is wrong is added to the mistakes.

    Args:
        more: By name of a document, topics after those of its file.
    """
    expanded = ExpandedDocuments()
    for document in written:
        spec = _own_fields(document, mistakes)
        if spec is None:
            continue
        if spec.name in expanded.written:
            first = expanded.written[spec.name].document.place("name")
            mistakes.append(document.mistake("name", f"{spec.name!r} is the document at {first}", "rename one of them"))
            continue
        mistakes += _not_shared(document)
        pins = pin_file(document.file, spec.name) if spec.topics.pattern else None
        lines = read_pins(pins, spec, mistakes) if pins else dict.fromkeys(spec.topics.names, 0)
        topics = tuple(topic for topic in (*lines, *more.get(spec.name, ())) if not spec.skips(topic))
        expanded.written[spec.name] = TopicTablesDocument(spec, document, pins, topics)
        own = [_of_topic(document, spec, topic) for topic in topics]
        mistakes += _shared_app_ids(own)
        expanded.documents += own
    return expanded


def without_topics(written: Iterable[TopicTablesDocument]) -> Iterator[TopicDocument]:
    """Documents to find the mistakes in shared fields while no topic has them."""
    for one in written:
        if not one.topics:
            spec = replace(one.spec, exceptions={})
            yield replace(_of_topic(one.document, spec, NO_TOPIC), attributes=_shared(one.document) | _stand_in())


def _stand_in() -> dict[object, Any]:
    return {"topic": NO_TOPIC, "table": NO_TOPIC}


@lru_cache
def topic_tables_schema() -> dict[str, Any]:
    """The JSON Schema of the documents: their own fields, and those of a stream that topics can share."""
    own, of_stream = json_schema(TopicTablesSpec), json_schema(Stream)
    shared = {name: s for name, s in of_stream["properties"].items() if name not in (*OWN, *OF_ONE_TABLE)}
    described = "Many Kafka topics, each drained into a table of its own, which share the fields of a TopicTable."
    return {
        **own,
        "description": described,
        "properties": {**own["properties"], **shared},
        "$defs": {**of_stream["$defs"], **own.get("$defs", {})},
    }


def _own_fields(document: YamlDocument, mistakes: list[DocumentMistake]) -> TopicTablesSpec | None:
    attributes = document.attributes if isinstance(document.attributes, dict) else {}
    own = replace(document, attributes={name: value for name, value in attributes.items() if name in OWN})
    spec = validate_document(TopicTablesSpec, own)
    if isinstance(spec, list):
        mistakes += spec
        return None
    return spec


def _not_shared(document: YamlDocument) -> Iterator[DocumentMistake]:
    attributes = document.attributes if isinstance(document.attributes, dict) else {}
    for name in OF_ONE_TABLE:
        if name in attributes:
            right = "topics: [a, b]" if name == "topic" else f"in exceptions, e.g. {{orders: {{{name}: …}}}}"
            yield document.mistake(name, "belongs to one table, and cannot be shared", right)


def _shared(document: YamlDocument) -> dict[object, Any]:
    attributes: Mapping[object, Any] = document.attributes if isinstance(document.attributes, dict) else {}
    return {name: value for name, value in attributes.items() if name not in (*OWN, *OF_ONE_TABLE)}


def _of_topic(document: YamlDocument, spec: TopicTablesSpec, topic: str) -> TopicDocument:
    written = spec.exceptions.get(topic)
    own: Mapping[object, Any] = written if isinstance(written, dict) else {}
    names = spec.topics.names
    return TopicDocument(
        file=document.file,
        line=document.line,
        type=document.type,
        attributes={**_shared(document), "topic": topic, "table": spec.table_of(topic), **own},
        lines=document.lines,
        inherited={name: of for name, of in document.inherited.items() if name not in own},
        of=spec.name,
        topic=topic,
        topic_path=f"topics.{names.index(topic)}" if topic in names else "topics",
        own=frozenset(map(str, own)),
    )


def _shared_app_ids(documents: Iterable[TopicDocument]) -> Iterator[DocumentMistake]:
    first: dict[str, str] = {}
    for document in sorted(documents, key=lambda d: "app_id" in d.own):  # the mistake is in a field that is written
        fields = document.attributes if isinstance(document.attributes, dict) else {}
        app_id = str(fields.get("app_id", document.topic))
        if (other := first.setdefault(app_id, document.topic)) != document.topic:
            yield document.mistake("app_id", f"{app_id!r} is the app_id of topic {other}", "another one")
