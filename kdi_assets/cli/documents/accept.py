"""`kdi check --accept`: look for new topics of patterns, and take them into their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.loading.take_in import TakenIn
    from kdi_assets.operate.monitoring.new_topics import NewTopics


@dataclass(frozen=True, slots=True)
class AcceptedTopics:
    """What was found for a document with a pattern, and what became of it."""

    found: NewTopics
    taken: TakenIn

    def texts(self) -> Iterator[str]:
        """Lines for people."""
        from kdi_assets.documents.loading.folder import display_path
        from kdi_assets.operate.monitoring.new_topics import named

        name, file = self.found.name, display_path(self.found.pins)
        if self.found.refusal:
            return
        if self.taken.topics:
            yield f"{name}: added to {file}: {named(self.taken.topics)}"
        elif self.taken.unwritable:
            yield f"{name}: {file} cannot be written: {self.taken.unwritable}"
        elif not self.found.new:
            yield f"{name}: no new topic"
        if self.found.gone:
            yield f"{name}: the cluster does not show {named(self.found.gone)}; the lines in {file} stay"

    def fields(self) -> dict[str, object]:
        """The same for programs."""
        topics, found = self.taken.topics, self.found
        left = [topic for topic in found.new if topic not in topics]
        return {"document": found.name, "file": str(found.pins), "added": topics, "left": left, "gone": found.gone}


def accept_topics(folder: Path, loaded: LoadedFolder) -> list[AcceptedTopics]:
    """Ask each cluster that has a document with a pattern, and add new topics to the documents' files."""
    from kdi_assets.documents.loading.take_in import TakenIn, take_in
    from kdi_assets.operate.monitoring.new_topics import read_new_topics

    return [
        AcceptedTopics(found, take_in(folder, found.document, found.new) if found.new else TakenIn())
        for found in read_new_topics(loaded.topic_tables.values(), loaded.clusters)
    ]
