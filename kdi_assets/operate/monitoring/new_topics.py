"""Which topics of a cluster match a document's pattern and have no table yet, and which pinned ones are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kdi_assets.documents.loading.pinned_topics import read_pins
from kdi_assets.documents.loading.topic_tables import TopicTablesDocument
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.of_stream import topics_of

ACCEPT = "kdi check --accept"
NAMED = 5
"""So many topics are named in a text."""


@dataclass(frozen=True, slots=True)
class NewTopics:
    """What a look at the cluster of a document with a pattern found.

    Attributes:
        new: Topics that match and are not in the file, in alphabetical order.
        gone: Topics of the file that the cluster does not show.
        not_loaded: Topics of the file that the loaded documents did not have yet.
        refusal: Why the cluster did not answer; then nothing is known of its topics.
    """

    document: TopicTablesDocument
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    not_loaded: tuple[str, ...] = ()
    refusal: KdiError | None = None

    @property
    def name(self) -> str:
        """The name of the document."""
        return self.document.name

    @property
    def pins(self) -> Path:
        """The file of the pinned topics."""
        if self.document.pins is None:
            raise TypeError(f"{self.name} has a list of topics")
        return self.document.pins

    def without(self, taken: Collection[str]) -> NewTopics:
        """The same without new topics that were taken in."""
        return replace(self, new=tuple(topic for topic in self.new if topic not in taken))

    def texts(self) -> list[str]:
        """A line for what someone should know; none if there is nothing."""
        lines = [f"{_matching(self.new)} no table: {named(self.new)}. Run: {ACCEPT}"] if self.new else []
        if self.not_loaded:
            lines.append(f"pinned, and not loaded: {named(self.not_loaded)}; reload the code location")
        return [f"{self.name}: {line}" for line in lines]


def read_new_topics(
    documents: Iterable[TopicTablesDocument],
    clusters: Mapping[str, Cluster],
    *,
    ask: Callable[[Cluster], Collection[str]] = topics_of,
) -> list[NewTopics]:
    """Look at the clusters of the documents that have a pattern; one request to each.

    Args:
        clusters: By name; a document of another one is left out, because it has a mistake.
    """
    patterns = [d for d in documents if d.pins and d.cluster in clusters]
    answers: dict[str, Collection[str] | KdiError] = {}
    for name in {d.cluster: None for d in patterns}:
        try:
            answers[name] = ask(clusters[name])
        except KdiError as refusal:
            answers[name] = refusal
    return [_found(document, answers[document.cluster]) for document in patterns]


def _found(document: TopicTablesDocument, answer: Collection[str] | KdiError) -> NewTopics:
    # Read now: the file may have changed since the documents were loaded.
    pinned = read_pins(document.pins, document.spec, []) if document.pins else {}
    not_loaded = tuple(t for t in pinned if t not in document.topics and not document.spec.skips(t))
    if isinstance(answer, KdiError):
        return NewTopics(document, not_loaded=not_loaded, refusal=answer)
    held = set(answer)
    gone = tuple(t for t in pinned if t not in held and not document.spec.skips(t))
    return NewTopics(document, document.spec.new(held, pinned=pinned), gone, not_loaded)


def named(topics: Collection[str]) -> str:
    """The first topics, and the number of the others."""
    first = ", ".join([*topics][:NAMED])
    return f"{first} and {len(topics) - NAMED:,} more" if len(topics) > NAMED else first


def _matching(topics: Collection[str]) -> str:
    return "1 topic matches and has" if len(topics) == 1 else f"{len(topics):,} topics match and have"
