"""Topics that are filled in steps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from benchmarks.contents import Content
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.local.publisher import BATCH, Outbox, ensure_topic

PARTITIONS, DATES = 4, 3


class Topic:
    """A topic with messages of one content.

    Attributes:
        published: Messages so far.
        bad: Those that cannot become a row.
    """

    def __init__(self, cluster: Cluster, name: str, content: Content) -> None:
        self.name, self.published, self.bad = name, 0, 0
        self._cluster, self._content = cluster, content
        self._create()
        self._good = WebRequests(Traffic(dates=DATES, seed=1))
        self._bad = WebRequests(Traffic(dates=DATES, seed=2, bad=1.0))

    def publish(self, count: int) -> None:
        """Publish this many messages, in turn to all topic partitions.

        Raises:
            DeliveryFailed: The broker did not acknowledge every message.
        """
        outbox = Outbox(self._cluster, self.name)
        for values in self._batches(count):
            for partition in range(PARTITIONS):
                outbox.put(values[partition::PARTITIONS], partition=partition)
            outbox.wait(until=0.0, stopped=lambda: False)
        outbox.close()

    def _create(self) -> None:
        ensure_topic(self._cluster, self.name, partitions=PARTITIONS)

    def _batches(self, count: int) -> Iterator[list[bytes | None]]:
        for sent in range(0, count, BATCH):
            yield self._batch(min(BATCH, count - sent))

    def _batch(self, count: int) -> list[bytes | None]:
        now = datetime.now(UTC)
        values = [value and self._content.encode(value) for value in self._good.batch(count, now=now)]
        if self._content.bad:
            for number, value in enumerate(self._bad.batch(count // 100, now=now)):
                values[number * 100 + number % 100] = value  # bad ones in all topic partitions
            self.bad += count // 100
        self.published += count
        return values
