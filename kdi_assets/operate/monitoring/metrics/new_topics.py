"""The collector of new topics: one sample for each document with a pattern."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.messages.of_stream import topics_of
from kdi_assets.operate.monitoring.metrics.names import NEW_TOPICS
from kdi_assets.operate.monitoring.metrics.snapshot import PATIENCE_SECONDS
from kdi_assets.operate.monitoring.new_topics import read_new_topics
from kdi_assets.runtime.threads import start_in_thread

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector


def new_topics_collector(loaded: LoadedFolder, *, ask: Callable[[Cluster], Collection[str]] = topics_of) -> Collector:
    """Looks at each cluster with a pattern once a scrape; one that does not answer in time has no sample."""
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    documents: dict[str, list[str]] = {}
    for one in loaded.topic_tables.values():
        if one.pins:
            documents.setdefault(one.cluster, []).append(one.name)

    class Topics(Collector):
        def collect(self) -> Iterator[Family]:
            family = GaugeMetricFamily(NEW_TOPICS.name, NEW_TOPICS.meaning, labels=NEW_TOPICS.labels)
            looks = []
            for names in documents.values():
                of_cluster = [loaded.topic_tables[name] for name in names]
                look = partial(read_new_topics, of_cluster, loaded.clusters, ask=ask)
                looks.append(start_in_thread(look, name="new topics"))
            wait(looks, timeout=PATIENCE_SECONDS)
            for found in (found for look in looks if look.done() for found in look.result()):
                if found.refusal is None:
                    family.add_metric((found.name,), float(len(found.new) + len(found.not_loaded)))
            yield family

    return Topics()
