"""What a tick hands to Dagster: as few runs as it takes, and what was seen of the topics they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import dagster as dg

from kdi_assets.components.drain_run import REQUESTED_TAG
from kdi_assets.components.names import dates, table_key, topic_key
from kdi_assets.components.topics import ends_digest
from kdi_assets.drain.look import Backlog
from kdi_assets.stream import Stream


def run_requests(due: Sequence[Backlog], streams: Mapping[str, Stream], *, now: datetime) -> list[dg.RunRequest]:
    """One run for all streams that are due, or one per date window, since Dagster wants the same partitions in a run.

    The first stream of ``due`` comes first. A stream whose dates do not include today's is left out, because Dagster
    would refuse the whole tick for it (``without_today`` names them).
    """
    today = now.date().isoformat()
    windows: dict[dg.DailyPartitionsDefinition, list[Backlog]] = {}
    for backlog in due:
        partitions = dates(streams[backlog.stream])
        if partitions.has_partition_key(today):
            windows.setdefault(partitions, []).append(backlog)
    return [_request(together, streams, now=now) for together in windows.values()]


def _request(due: Sequence[Backlog], streams: Mapping[str, Stream], *, now: datetime) -> dg.RunRequest:
    # No run key: Dagster remembers keys for ever and would drop the second request after a failed run.
    return dg.RunRequest(
        asset_selection=[table_key(streams[b.stream]) for b in due],
        asset_check_keys=[],  # None would select the checks too, and they read the whole table
        partition_key=now.date().isoformat(),
        tags={
            REQUESTED_TAG: now.isoformat(),
            "kdi/streams": ",".join(b.stream for b in due),
            "kdi/backlog": str(sum(b.offsets for b in due)),
            "kdi/lag_seconds": str(round(max(b.lag_seconds or 0.0 for b in due))),
        },
    )


def without_today(due: Iterable[Backlog], streams: Mapping[str, Stream], *, now: datetime) -> list[str]:
    """A line for each stream that cannot be requested because its date window has not begun."""
    today = now.date().isoformat()
    early = [streams[b.stream] for b in due if not dates(streams[b.stream]).has_partition_key(today)]
    return [f"{s.name}: its date window begins on {s.date_window.start}; no run before that" for s in early]


def topic_observations(due: Collection[Backlog], streams: Mapping[str, Stream]) -> list[dg.AssetObservation]:
    """What was seen of the topics of these streams, once per topic."""
    seen = {topic_key(streams[b.stream].cluster, streams[b.stream].topic): b for b in due}
    return [_observation(key, backlog) for key, backlog in seen.items()]


def _observation(key: dg.AssetKey, backlog: Backlog) -> dg.AssetObservation:
    ends = {tp: seen.end for tp, seen in sorted(backlog.topic_partitions.items())}
    return dg.AssetObservation(
        key,
        tags={"dagster/data_version": ends_digest(ends)},
        metadata={
            "end_offsets": dg.MetadataValue.json({str(tp): end for tp, end in ends.items()}),
            "backlog": backlog.offsets,
            "open_transaction_offsets": backlog.open_transaction_offsets,
            **({} if backlog.lag_seconds is None else {"lag_seconds": backlog.lag_seconds}),
        },
    )
