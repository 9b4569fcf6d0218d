"""Announces versions that no run announced: commits of other writers, and those after which an announcement failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import dagster as dg

from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Stream
from kdi_assets.sensors.in_flight import run_in_flight
from kdi_assets.sensors.policy import Rests
from kdi_assets.streams.announce.announce import Announced, announce_or_report

SECONDS = 10.0
"""How long a tick may announce; the next one goes on."""

Announcing = Callable[..., Announced | None]
"""``announce_or_report``; a test about the sensor alone passes another."""


class Announcers:
    """Remembers how far each table is announced; a new process asks the bookmarks."""

    def __init__(self, versions: LatestVersions, announcing: Announcing = announce_or_report) -> None:
        self._versions, self._announcing = versions, announcing
        self._through: dict[str, int] = {}
        self._rests = Rests()

    def catch_up(
        self, streams: Iterable[Stream], *, lake: str, in_flight: Mapping[dg.AssetKey, dg.RunRecord]
    ) -> list[str]:
        """Announce what is new in the tables of streams without a run in flight.

        Returns:
            A line for each table that was announced, or could not be.
        """
        deadline, lines = time.monotonic() + SECONDS, list[str]()
        due = (stream for stream in streams if stream.announce and self._is_due(stream, lake))
        for stream in due:
            if time.monotonic() > deadline:
                break
            if run_in_flight(stream, in_flight):
                continue  # it announces what it commits, and the two would refuse each other
            self._announce(stream, lake, lines, until=deadline)
        return lines

    def _announce(self, stream: Stream, lake: str, lines: list[str], *, until: float) -> None:
        done = self._announcing(stream, lake, lines.append, until=until)
        if done is None or done.through is None:  # it failed, or there is no table yet
            self._rests.failed(stream.name)
            return
        self._rests.succeeded(stream.name)
        self._through[stream.name] = done.through

    def _is_due(self, stream: Stream, lake: str) -> bool:
        if stream.name in self._rests:
            return False  # runs announce it meanwhile
        known = self._through.get(stream.name)
        if known is None:
            return True
        newest = self._versions.of(stream.table_uri(lake), since=known)
        return newest is None or newest.version != known
