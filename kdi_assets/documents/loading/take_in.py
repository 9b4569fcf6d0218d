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
    if mistakes := _mistakes(folder, document, ()):  # they keep the location from loading already
        return TakenIn(mistakes=mistakes)
    good, mistakes = _fitting(folder, document, (), tuple(new))
    try:
        if good and document.pins:
            add_pins(document.pins, document.name, good)
    except OSError as refused:
        return TakenIn(mistakes=mistakes, unwritable=refused.strerror or str(refused))
    return TakenIn(good, mistakes)


def _fitting(
    folder: Path, document: TopicTablesDocument, good: tuple[str, ...], new: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[DocumentMistake, ...]]:
    """The topics with which the documents have no mistake, and the mistakes of the others.

    A clash of two documents is a mistake of the one that is read later, which may be the other one. So topics are
    tried, in halves.

    Args:
        good: Those that were found to fit.
    """
    mistakes = _mistakes(folder, document, (*good, *new)) if new else ()
    if not mistakes:
        return (*good, *new), ()
    if len(new) == 1:
        return good, mistakes
    half = len(new) // 2
    good, first = _fitting(folder, document, good, new[:half])
    good, second = _fitting(folder, document, good, new[half:])
    return good, (*first, *second)


def _mistakes(folder: Path, document: TopicTablesDocument, topics: Collection[str]) -> tuple[DocumentMistake, ...]:
    return tuple(sorted_mistakes(read_streams(folder, more_topics={document.name: topics}).mistakes))
