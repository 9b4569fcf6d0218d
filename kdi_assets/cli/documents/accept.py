"""`kdi check --accept`: look for new topics of patterns, and take them into their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kdi_assets.documents.loading.errors import DocumentMistake
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.loading.take_in import TakenIn
    from kdi_assets.errors import KdiError
    from kdi_assets.operate.monitoring.new_topics import NewTopics


@dataclass(frozen=True, slots=True)
class AcceptedTopics:
    """What was found for each document with a pattern, and what became of it."""

    documents: Sequence[tuple[NewTopics, TakenIn]] = ()

    @property
    def changed_files(self) -> bool:
        """Whether a topic was added to a file."""
        return any(taken.topics for _, taken in self.documents)

    @property
    def unwritable(self) -> bool:
        """Whether a file could not be written."""
        return any(taken.unwritable for _, taken in self.documents)

    @property
    def mistakes(self) -> list[DocumentMistake]:
        """Those that the documents would have with topics that were not taken in."""
        return [mistake for _, taken in self.documents for mistake in taken.mistakes]

    @property
    def refusals(self) -> list[KdiError]:
        """Of each cluster that did not answer, the reason."""
        by_cluster = {found.document.cluster: found.refusal for found, _ in self.documents}
        return [refusal for refusal in by_cluster.values() if refusal]

    def print(self) -> None:
        """Print lines for people, on stdout."""
        for found, taken in self.documents:
            for line in () if found.refusal else _lines(found, taken):
                typer.echo(line)

    def fields(self) -> dict[str, object]:
        """The same for programs; empty if nobody asked."""
        return {"accepted": [_fields(*one) for one in self.documents]} if self.documents else {}


def accept_topics(folder: Path, loaded: LoadedFolder) -> AcceptedTopics:
    """Ask each cluster that has a document with a pattern, and add new topics to the documents' files."""
    from kdi_assets.documents.loading.take_in import TakenIn, take_in
    from kdi_assets.operate.monitoring.new_topics import read_new_topics

    looked = read_new_topics(loaded.topic_tables.values(), loaded.clusters)
    return AcceptedTopics(
        [(found, take_in(folder, found.document, found.new) if found.new else TakenIn()) for found in looked]
    )


def _lines(found: NewTopics, taken: TakenIn) -> Iterator[str]:
    from kdi_assets.documents.loading.folder import display_path
    from kdi_assets.operate.monitoring.new_topics import named

    file = display_path(found.pins)
    if taken.topics:
        yield f"{found.name}: added to {file}: {named(taken.topics)}"
    elif taken.unwritable:
        yield f"{found.name}: {file} cannot be written: {taken.unwritable}"
    elif not found.new:
        yield f"{found.name}: no new topic"
    if found.gone:
        yield f"{found.name}: the cluster does not show {named(found.gone)}; the lines in {file} stay"


def _fields(found: NewTopics, taken: TakenIn) -> dict[str, object]:
    left = [topic for topic in found.new if topic not in taken.topics]
    result: dict[str, object] = {
        "document": found.name,
        "file": str(found.pins),
        "added": taken.topics,
        "left": left,
        "gone": found.gone,
    }
    return {**result, "unwritable": taken.unwritable} if taken.unwritable else result
