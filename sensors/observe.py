"""Observations of topics that a tick logs: only changes, and not too often."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dagster as dg

from kdi_assets.components.names import topic_key
from kdi_assets.documents.model.stream import Stream, TopicPartition, offsets_digest
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.sensors.policy import progress_digest

OBSERVE_SECONDS = 120.0
OBSERVED_PER_TICK = 50
"""Each observation is a row in Dagster's database, and a thousand would delay the tick."""


class Observations:
    """Observes a topic when it changed, at most every two minutes.

    The state is kept in the process, not in the cursor: after a restart each topic is observed once more.
    """

    def __init__(self) -> None:
        self._logged: dict[dg.AssetKey, tuple[str, float]] = {}
        self._keys: dict[str, dg.AssetKey] = {}
        self._states: dict[dg.AssetKey, tuple[list[Backlog], str]] = {}

    def due(
        self, backlogs: Collection[Backlog], streams: Mapping[str, Stream], *, now: float
    ) -> list[dg.AssetObservation]:
        """The observations to log now, one per topic.

        Args:
            now: Seconds since the epoch.
        """
        readers: dict[dg.AssetKey, list[Backlog]] = {}
        for b in backlogs:
            if b.topic_partitions:
                readers.setdefault(self._key(streams[b.stream]), []).append(b)
        states = {key: self._state(key, own) for key, own in readers.items()}
        before = {key: self._logged.get(key, ("", 0.0)) for key in readers}
        changed = [k for k, (state, at) in before.items() if state != states[k] and now - at >= OBSERVE_SECONDS]
        longest_ago_first = sorted(changed, key=lambda key: before[key][1])[:OBSERVED_PER_TICK]
        self._logged |= {key: (states[key], now) for key in longest_ago_first}
        return [_observation(key, readers[key]) for key in longest_ago_first]

    def _key(self, stream: Stream) -> dg.AssetKey:
        if stream.name not in self._keys:
            self._keys[stream.name] = topic_key(stream.cluster, stream.topic)
        return self._keys[stream.name]

    def _state(self, key: dg.AssetKey, readers: list[Backlog]) -> str:
        """As the function; the backlogs of an idle topic are the same objects in each tick."""
        known, state = self._states.get(key, ([], ""))
        if known != readers:
            state = _state(readers)
            self._states[key] = readers, state
        return state


def _state(readers: Sequence[Backlog]) -> str:
    """A digest of the topic's end offsets and its readers' positions."""
    return offsets_digest(_ends(readers)) + "".join(map(progress_digest, readers))


def _ends(readers: Sequence[Backlog]) -> dict[TopicPartition, int]:
    return {tp: partition.end for tp, partition in sorted(readers[0].topic_partitions.items())}


def _observation(key: dg.AssetKey, readers: Sequence[Backlog]) -> dg.AssetObservation:
    ends = _ends(readers)
    worst = max(readers, key=lambda b: (b.lag_seconds or 0.0, b.offsets))
    by_stream = {f"backlog of {b.stream}": b.offsets for b in readers} if len(readers) > 1 else {}
    return dg.AssetObservation(
        key,
        tags={"dagster/data_version": offsets_digest(ends)},
        metadata={
            "end_offsets": dg.MetadataValue.json({str(tp): end for tp, end in ends.items()}),
            "open_transaction_offsets": worst.open_transaction_offsets,
            **_backlog_metadata(worst),
            **by_stream,
        },
    )


def _backlog_metadata(backlog: Backlog) -> dict[str, Any]:
    """A backlog's numbers for Dagster's plots, without those that are unknown or infinite."""
    numbers = {
        "lag_seconds": backlog.lag_seconds,
        "arrival_rate": backlog.arrival_rate,
        "time_to_loss_seconds": backlog.time_to_loss_seconds,
        "time_to_close_seconds": backlog.time_to_close_seconds,
    }
    known = {name: round(value, 1) for name, value in numbers.items() if value is not None and value != float("inf")}
    word = {"status": backlog.word.value} if backlog.word else {}
    return {"backlog": backlog.offsets, **known, **word}
