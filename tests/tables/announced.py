"""What consumers see of a topic of announcements."""

from __future__ import annotations

from collections.abc import Iterable

from deltalake import DeltaTable

from kdi_assets.documents.model.announcement import Announcement, parse_announcement
from kdi_assets.documents.model.stream import Cluster, OffsetRange
from kdi_assets.messages.kafka.messages import visible_messages
from kdi_assets.messages.kafka.topic import read_topic


def announcements(cluster: Cluster, topic: str) -> list[Announcement]:
    """The committed announcements in the order of their offsets, each topic partition after the other."""
    offsets = read_topic(cluster, topic).partitions
    ranges = {tp: [OffsetRange(tp, o.earliest, o.end)] for tp, o in offsets.items() if o.end > o.earliest}
    found = {(m.topic_partition.partition, m.offset): m.value for m in visible_messages(cluster, ranges)}
    return [parse_announcement(bytes(found[at] or b"")) for at in sorted(found)]


def assert_each_version_once(found: Iterable[Announcement], uri: str) -> None:
    """The announcements form one chain, and added up they are the table's files at the last announced version."""
    files: dict[str, int | None] = {}
    previous: Announcement | None = None
    for this in found:
        if previous and this.part > 1:
            assert (this.version, this.part) == (previous.version, previous.part + 1)
        else:
            assert this.sequence == (previous.sequence + 1 if previous else 1), f"{this} after {previous}"
            assert this.previous_version == (previous.version if previous else None)
            assert previous is None or this.version > previous.version
        if this.kind == "listing" and this.part == 1:
            files.clear()
        for file in this.removed:
            assert file.path in files, f"v{this.version} removes {file.path}, which is not there"
            del files[file.path]
        for file in this.added:
            assert file.path not in files, f"v{this.version} adds {file.path} a second time"
            files[file.path] = file.rows
        previous = this
    assert previous is not None, "nothing was announced"
    assert set(files) == set(DeltaTable(uri, version=previous.version).file_uris())
