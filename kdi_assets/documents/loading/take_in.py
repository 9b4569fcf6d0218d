"""Take new topics of a pattern into its file: only those with which the documents of the folder still load."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.loading.loader import read_streams
from kdi_assets.documents.loading.pinned_topics import add_pins
from kdi_assets.documents.loading.topic_tables import TopicTablesDocument
from kdi_assets.documents.loading.yaml_documents import sorted_mistakes


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of new topics.

    Attributes:
        topics: Those that are in the file now.
        mistakes: Those that the documents would have with the others.
        unwritable: Why the file could not be written; empty if it could, or need not be.
    """

    topics: tuple[str, ...] = ()
    mistakes: tuple[DocumentMistake, ...] = ()
    unwritable: str = ""


def take_in(folder: Path, document: TopicTablesDocument, new: Collection[str]) -> TakenIn:
    """Add topics to the file of a document with a pattern.

    A topic whose table would be a mistake, as one that another document has, stays out: with it in the file, the code
    location would not load, and all other tables would stand still.
    """
    mistakes = sorted_mistakes(read_streams(folder, more_topics={document.name: new}).mistakes)
    wrong = {topic for mistake in mistakes for topic in mistake.topics}
    others = [mistake for mistake in mistakes if not mistake.topics]  # no topic in particular: none is taken in
    good = () if others else tuple(topic for topic in new if topic not in wrong)
    try:
        if good and document.pins:
            add_pins(document.pins, document.name, good)
    except OSError as refused:
        return TakenIn(mistakes=mistakes, unwritable=refused.strerror or str(refused))
    return TakenIn(good, mistakes)
