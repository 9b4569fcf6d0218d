"""A look at backlogs that a test scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog, State


@dataclass
class Seen:
    """A scripted look that counts its calls."""

    partitions: Mapping[str, PartitionBacklog] = field(default_factory=dict)
    refusals: Mapping[str, KdiError] = field(default_factory=dict)
    looks: int = 0

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        self.looks += 1
        return [self._backlog(stream) for stream in streams]

    def _backlog(self, stream: Stream) -> Backlog:
        idle = PartitionBacklog(100, 100, 0, word=State.OK)
        held = self.partitions.get(stream.name, idle)
        refusal = self.refusals.get(stream.name)
        partitions = {} if refusal else {TopicPartition(stream.topic, 0): held}
        return Backlog(stream.name, partitions, held.offsets, held.lag_seconds, refusal, 0)
