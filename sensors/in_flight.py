"""Which assets an unfinished run is about, however it was started, and what it does to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import letters_key, table_key
from kdi_assets.components.unfinished import assets_of, drained_by
from kdi_assets.stream import Stream

UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


class Unfinished(NamedTuple):
    """A run that will materialize an asset.

    Attributes:
        drains: It drains that table, or will; else it only replays.
    """

    record: dg.RunRecord
    drains: bool


InFlight = Mapping[dg.AssetKey, Sequence[Unfinished]]


def drain_of(stream: Stream, in_flight: InFlight) -> dg.RunRecord | None:
    """The oldest run that will drain the stream: another one requested now would wait for it."""
    return next((run.record for run in in_flight.get(table_key(stream), ()) if run.drains), None)


def replays_of(stream: Stream, in_flight: InFlight) -> frozenset[str]:
    """The runs that will replay dates of the stream, or its dead letters, and drain it no more."""
    of_dates = (run for run in in_flight.get(table_key(stream), ()) if not run.drains)
    return frozenset(run.record.dagster_run.run_id for run in (*of_dates, *in_flight.get(letters_key(stream), ())))


def assets_in_flight(instance: DagsterInstance) -> InFlight:
    """The assets that queued and running runs will materialize, each with its runs, the oldest first.

    It does not matter what started them: a sensor, the UI, the command line.
    """
    newest_first = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    found: dict[dg.AssetKey, list[Unfinished]] = defaultdict(list)
    for record in reversed(newest_first):
        drained = drained_by(instance, record.dagster_run)
        for key in assets_of(instance, record.dagster_run):
            found[key].append(Unfinished(record, key in drained))
    return found
