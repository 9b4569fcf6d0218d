"""Looks at topics of Kafka again and again: a topic into which nothing comes is asked for its ends only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.topic_state import TopicReading, TopicState, Waiting

WHOLE_SECONDS = 30.0
"""How long all else of a topic counts as known while its ends stay: its id, its topic partitions, its first offsets,
and transactions that are open. A drain asks for everything itself."""


@dataclass(slots=True)
class KafkaWatch:
    """The topics of a cluster; the methods are those of ``Watch``.

    Most topics of an idle deployment answer one request, not four.
    """

    cluster: Cluster
    clock: Callable[[], float] = monotonic
    _idle: dict[str, tuple[TopicState, float]] = field(default_factory=dict)
    _last: dict[str, TopicState] = field(default_factory=dict)

    def topics(self, names: Collection[str], *, leader_seconds: float) -> dict[str, TopicState | KdiError]:
        now = self.clock()
        idle = {name: kept[0] for name in names if (kept := self._idle.get(name)) and now < kept[1]}
        still = kafka.with_same_ends(self.cluster, idle.values()) if idle else {}
        asked = [name for name in names if name not in still]
        # Forgotten before they are asked: while no broker answers, a look waits once.
        before = {name: self._last.pop(name, None) for name in asked}
        for name in asked:
            self._idle.pop(name, None)
        found = kafka.read_topics(self.cluster, asked, leader_seconds=leader_seconds) if asked else {}
        for name, last in before.items():
            state = found.get(name)
            if isinstance(state, TopicState):
                self._last[name] = state
                if last is not None and last.ends == state.ends:
                    self._idle[name] = state, now + WHOLE_SECONDS
        return {**still, **found}

    def anew(self, name: str) -> TopicState:
        return kafka.read_topic(self.cluster, name)

    def waiting(
        self, readings: Mapping[str, TopicReading], *, leader_seconds: float
    ) -> Mapping[str, Waiting | KdiError]:
        return {}  # offsets are known before messages are read
