"""The sensor of new topics: shows those that match a document's pattern, takes them in if it says so, and alerts.

Apart from the lag sensor: a list of all topics of a cluster is a request of its own, which need not come every five
seconds, and a cluster whose pattern has no topic yet has no lag sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.components.names import identifier
from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.loading.take_in import take_in
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.messages.of_stream import topics_of
from kdi_assets.operate.monitoring.new_topics import NewTopics, named, read_new_topics
from kdi_assets.resources.reload import ReloadFailed, reload_location
from kdi_assets.sensors.alerts import send_new
from kdi_assets.sensors.default_status import described, sensor_status
from kdi_assets.sensors.incidents import MOMENT_SECONDS, Incident, IncidentKind, track
from kdi_assets.sensors.memory import TrackedIncident, read_json
from kdi_assets.settings import Settings

TICK_SECONDS = 30
CANNOT_RELOAD = "this code server cannot load documents again: reload the code location"
_CURSOR = TypeAdapter(dict[str, TrackedIncident])


def new_topic_sensors(folder: Path, loaded: LoadedFolder) -> list[dg.SensorDefinition]:
    """One sensor per cluster that has a document with a pattern, ``new_topics_<cluster>``."""
    patterns = [d for d in loaded.topic_tables.values() if d.pins and d.cluster in loaded.clusters]
    names = sorted({d.cluster for d in patterns})
    return [new_topic_sensor(loaded.clusters[name], NewTopicsTick(folder, loaded, name)) for name in names]


def new_topic_sensor(cluster: Cluster, tick: NewTopicsTick) -> dg.SensorDefinition:
    """The sensor that looks for new topics of a cluster; it requests no runs."""

    @dg.sensor(
        name=f"new_topics_{identifier(cluster.name)}",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        description=described(
            f"Shows topics of cluster {cluster.name} that match a document's pattern and have no table, and "
            "takes them in where it says `new_topics: add`."
        ),
    )
    def new_topics(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context)

    return new_topics


@dataclass(slots=True)
class NewTopicsTick:
    """One evaluation of the sensor.

    Attributes:
        cluster: The name of the cluster.
        ask: Lists the topics of a cluster.
        reload: Loads the documents again; false if this process cannot.
        tried: The pinned topics that the documents were loaded again for, in vain.
    """

    folder: Path
    loaded: LoadedFolder
    cluster: str
    ask: Callable[[Cluster], Collection[str]] = topics_of
    reload: Callable[[], bool] = reload_location
    tried: set[str] = field(default_factory=set)

    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings, now = Settings.from_environment(), datetime.now(UTC)
        documents = [d for d in self.loaded.topic_tables.values() if d.cluster == self.cluster]
        found = read_new_topics(documents, self.loaded.clusters, ask=self.ask)
        lines, pinned = [], {topic for one in found for topic in one.not_loaded}
        left = []  # what a person has to look at
        for one in found:
            taken, said = self._take_in(one)
            pinned |= set(taken)
            lines += said
            left.append(one.without(taken))
            lines += left[-1].texts()
            lines += [f"{one.name}: unknown: {one.refusal.message_parts()[0]}"] if one.refusal else []
        lines += self._reload(pinned)
        tracked: Mapping[str, TrackedIncident] = {}
        if settings.alert_webhook:
            known = read_json(_CURSOR, context.cursor)
            current, names = dict(_incidents(left)), [d.name for d in documents]
            tracked = track(known, current, streams=names, now=now.timestamp())
            tracked, told = send_new(settings.alert_webhook, tracked, current, cluster=self.cluster, now=now)
            lines += told
        cursor = _CURSOR.dump_json(dict(tracked), exclude_defaults=True).decode()
        return dg.SensorResult(skip_reason="\n".join(lines) or "no new topic", cursor=cursor)

    def _take_in(self, found: NewTopics) -> tuple[Sequence[str], list[str]]:
        """The topics that were taken in, and lines for the tick."""
        if found.document.spec.new_topics != "add" or not found.new:
            return (), []
        taken = take_in(self.folder, found.document, found.new)
        lines = [f"{found.name}: {len(taken.topics):,} taken in: {named(taken.topics)}"] if taken.topics else []
        lines += [mistake.text() for mistake in taken.mistakes]
        if taken.unwritable:
            lines.append(f"{found.name}: {display_path(found.pins)} cannot be written: {taken.unwritable}")
        return taken.topics, lines

    def _reload(self, pinned: set[str]) -> list[str]:
        """Load the documents again if they have topics that the location has not; again if that failed."""
        if not pinned - self.tried:
            return []
        self.tried |= pinned
        try:
            return ["the code location was loaded again" if self.reload() else CANNOT_RELOAD]
        except ReloadFailed as failed:
            self.tried -= pinned  # the next tick tries again: a document may be put right meanwhile
            return [f"the code location could not be loaded again: {failed}"]


def _incidents(found: Sequence[NewTopics]) -> Iterator[tuple[str, Incident | None]]:
    for one in found:
        if one.refusal is None:  # else unknown, and the lag sensor's incident
            texts = "; ".join(one.texts()).removeprefix(f"{one.name}: ")
            # What is pinned and not loaded may be, a moment later.
            incident = Incident(texts, 0.0 if one.new else MOMENT_SECONDS)
            yield f"{IncidentKind.NEW_TOPICS}:{one.name}", incident if texts else None
