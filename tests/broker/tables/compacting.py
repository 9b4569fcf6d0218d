"""Compactions, and one that is held before its commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.transaction import delta_log
from kdi_assets.operate.upkeep.document_upkeep import DocumentUpkeep, keep_document, plan_upkeep
from tests.driven import DrivenStream
from tests.waiting import wait_until


def keep(web: DrivenStream, *, now: datetime | None = None, thorough: bool = False) -> DocumentUpkeep:
    now = now or datetime.now(UTC)
    planned = plan_upkeep(web.stream, web.lake, now=now, thorough=thorough)
    return keep_document(web.stream, web.lake, planned, session=web.session, now=now)


@contextmanager
def held_compaction(web: DrivenStream, *, later: timedelta = timedelta()) -> Iterator[list[DocumentUpkeep]]:
    """Compact in a thread until its files are written and it is about to commit; it goes on after the body.

    Delta takes the lock of the table's log to read the log, and to commit. This thread holds the lock and lets the
    other one pass until there are new files; it can itself commit meanwhile, because the lock is reentrant.
    """
    lock, done = delta_log(web.session(), web.uri).snapshotLock(), list[DocumentUpkeep]()
    stored = data_files(web)
    thread = Thread(target=lambda: done.append(keep(web, now=datetime.now(UTC) + later)), daemon=True)
    lock.lock()
    thread.start()
    try:
        while True:
            wait_until(lambda: bool(lock.hasQueuedThreads()))
            if data_files(web) != stored:
                break
            lock.unlock()
            wait_until(lambda: not lock.hasQueuedThreads())
            lock.lock()
        assert TableLog.existing(web.uri).commit(web.version()).operation != "OPTIMIZE"
        yield done
    finally:
        lock.unlock()
        thread.join()


def data_files(web: DrivenStream) -> set[Path]:
    """The files in the table's folder, whether a version has them or not."""
    return set(Path(web.uri).rglob("part-*.parquet"))
