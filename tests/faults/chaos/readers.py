"""Two readers, delta-rs and Spark, that read the table all the time and must never see half a drain."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.errors import KdiError
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import live_commits
from tests.oracle import at_path, is_set_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

At = tuple[int, int]
PAUSE_SECONDS = 0.5
READERS = ("delta-rs", "Spark")


@dataclass(frozen=True, slots=True)
class Look:
    """What one reader saw at one version.

    Attributes:
        entries: The live ones of the version, the oldest first.
    """

    reader: str
    version: int
    entries: Sequence[LedgerEntry]
    seen: Counter[At]


@dataclass
class Readers:
    """The threads of both, and what they saw since the last check.

    Attributes:
        looks: How often each of them read a version.
        failed: What they could not read: a VACUUM removes files under a reader.
        broken: Errors that no reader should meet.
    """

    stream: Stream
    lake: str
    session: Callable[[], SparkSession]
    looks: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _waiting: list[Look] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for name, rows in zip(READERS, (self._rows_by_delta_rs, self._rows_by_spark), strict=True):
            thread = threading.Thread(target=self._read_on, args=(name, rows), name=f"{name} reads", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)

    def check(
        self, wanted: Callable[[Sequence[LedgerEntry]], Counter[At]], given_up: Collection[OffsetRange], *, seed: int
    ) -> None:
        """What was seen: every message below the positions of the version, once, and nothing else.

        Args:
            wanted: How often the message of each offset must be there; by the live entries.
            given_up: Offsets that may have been missing.
        """
        assert not self.broken, self.broken
        spared = {(r.topic_partition.partition, offset) for r in given_up for offset in range(r.start, r.end)}
        while self._waiting:
            look = self._waiting.pop()
            right = wanted(look.entries)
            missing = sorted((right - look.seen).keys() - spared)[:5]
            wrong = sorted((look.seen - right).keys())[:5]
            assert not (missing or wrong), (
                f"{look.reader} saw half a drain at version {look.version}: missing {missing}, too many {wrong}; "
                f"seed {seed}"
            )

    def _read_on(self, name: str, rows: Callable[[int], Collection[At]]) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            try:
                if look := self._look(name, rows):
                    self._waiting.append(look)
                    self.looks[name] += 1
            except (DeltaError, OSError, ValueError, PySparkException, Py4JError, KdiError) as failed:
                self.failed.append(f"{name}: {failed}")
            except Exception as broken:  # noqa: BLE001 - the next check raises it: an error of a thread reaches nobody
                self.broken.append(f"{name}: {broken!r}")
                return

    def _look(self, name: str, rows: Callable[[int], Collection[At]]) -> Look | None:
        log = TableLog.open(self.stream.table_uri(self.lake))
        if log is None:
            return None
        entries = self._entries(log)
        seen = Counter(rows(log.version))
        seen.update(self._letters(entries))
        return Look(name, log.version, entries, seen)

    def _entries(self, log: TableLog) -> list[LedgerEntry]:
        """The live ledger entries at the log's version, the oldest first."""
        found = (parse_entry(c.user_metadata, c.version, self.stream.app_id) for c in live_commits(log))
        return [entry for entry in found if entry][::-1]

    def _rows_by_delta_rs(self, version: int) -> Collection[At]:
        column, table = self.stream.coordinates.partition(".")[0], self.stream.table_uri(self.lake)
        rows = DeltaTable(table, version=version).to_pyarrow_table(columns=[column]).to_pylist()
        kept = (at_path(row, self.stream.coordinates) for row in rows)
        return [(k["partition"], k["offset"]) for k in kept]

    def _rows_by_spark(self, version: int) -> Collection[At]:
        table, where = self.session().read.format("delta").option("versionAsOf", version), self.stream.coordinates
        kept = table.load(self.stream.table_uri(self.lake)).select(f"{where}.partition", f"{where}.offset")
        return [(row["partition"], row["offset"]) for row in kept.collect()]

    def _letters(self, entries: Sequence[LedgerEntry]) -> Collection[At]:
        """The letters that count; those do not that are to be read again."""
        uri = self.stream.dead_letters_uri(self.lake)
        if not DeltaTable.is_deltatable(uri):
            return []
        letters = DeltaTable(uri).to_pyarrow_table(columns=["partition", "offset", "attempt_id"]).to_pylist()
        attempts = {entry.attempt_id for entry in entries}
        counting = (x for x in letters if x["attempt_id"] in attempts and not is_set_back(x, self.stream, entries))
        return [(x["partition"], x["offset"]) for x in counting]
