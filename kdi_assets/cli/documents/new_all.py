"""`kdi new --all`: one document for the topics of a cluster that no document drains yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.cli.output import print_progress
from kdi_assets.errors import Terminal

if TYPE_CHECKING:
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.model.connections.connections import Cluster
    from kdi_assets.tools.scaffold.propose import Proposal


@dataclass(frozen=True, slots=True)
class NewForAll:
    """The document that is proposed for a cluster.

    Attributes:
        topics: Those that it describes.
        skipped: Topics without a table that it does not describe, with the reason.
        file: Where it was written; ``None``: nowhere.
    """

    text: str
    topics: tuple[str, ...]
    skipped: dict[str, str]
    file: Path | None

    def said(self, option: str) -> str:
        """What the command prints; ``option`` is the `--defs` that it was given, for the next command."""
        from kdi_assets.documents.loading.folder import display_path
        from kdi_assets.wording import counted

        if not self.file:
            return self.text.removesuffix("\n")
        left = [f"left out: {topic}: {why}" for topic, why in self.skipped.items()]
        return "\n".join(
            [f"{display_path(self.file)}: {counted(len(self.topics), 'topic')}", *left, f"  Run:  kdi check{option}"]
        )

    def fields(self) -> dict[str, object]:
        """The same for programs."""
        file = str(self.file) if self.file else None
        return {"topics": self.topics, "skipped": self.skipped, "file": file, "document": self.text}


def new_for_all(
    folder: Path,
    loaded: LoadedFolder,
    cluster: Cluster,
    *,
    propose: Callable[[str], Proposal],
    table: str,
    now: datetime,
    write: bool,
) -> NewForAll:
    """Sample every topic of the cluster that no document drains, and write one document for them.

    Raises:
        NothingProposed: No topic can be sampled, or the document cannot be written.
        BrokerUnreachable, LeaderMissing: A retry can help.
        AccessRefused: The brokers refuse access to the cluster.
    """
    from kdi_assets.messages.of_stream import topics_of
    from kdi_assets.tools.scaffold.document import document_file, write_document
    from kdi_assets.tools.scaffold.errors import NothingProposed
    from kdi_assets.tools.scaffold.many_topics import many_topics_document

    name = f"topics_of_{cluster.name}"
    file = document_file(folder, name, topic="--all") if write else None
    drained = {s.topic for s in loaded.streams.values() if s.cluster.name == cluster.name}
    proposals, skipped = _proposals((topic for topic in topics_of(cluster) if topic not in drained), propose)
    if not proposals:
        known = "\n".join(f"{topic}: {why}" for topic, why in skipped.items()) or "a document drains each of them"
        why = f"cluster {cluster.name} has no topic to propose a document for: {known}."
        raise NothingProposed(topic="--all", why=why, run="kdi new --all   (after producers have published)")
    text = many_topics_document(proposals, skipped, name=name, table=table, cluster=cluster.name, now=now)
    if file:
        write_document(folder, file, text, topic="--all")
        print_progress(f"{len(proposals):,} topics proposed, {len(skipped):,} left out")
    return NewForAll(text, tuple(proposals), skipped, file)


def _proposals(topics: Iterable[str], propose: Callable[[str], Proposal]) -> tuple[dict[str, Proposal], dict[str, str]]:
    """The proposals by topic, and why other topics have none."""
    proposals: dict[str, Proposal] = {}
    skipped: dict[str, str] = {}
    for topic in topics:
        try:
            proposals[topic] = propose(topic)
        except Terminal as refused:  # an empty topic, or one that may not be read, is no reason to stop
            skipped[topic] = refused.message_parts()[0]
    return proposals, skipped
