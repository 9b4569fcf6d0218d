"""Known ledgers: what the logs of tables said, until the tables have newer versions; for looks, never for drains."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.refusals import TableNotMoved
from kdi_assets.errors import KdiError
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.marks import LogMark, LogMarks
from kdi_assets.ledger.recent import LedgerCommit, recent_commits
from kdi_assets.ledger.state import LedgerState, read_ledger
from kdi_assets.stream import Stream


def fresh_ledger(stream: Stream, lake: str, *, topic_id: str, topic_partitions: int) -> LedgerState | None:
    """The ledger as it is now, with the dead letters that it counts on.

    Raises:
        TableNotMoved: The document was renamed, and the table was not.
        KdiError: As ``read_ledger``; or the dead letters are not those any more.
    """
    ledger = read_ledger(stream, lake, topic_id=topic_id, topic_partitions=topic_partitions)
    if ledger:
        refuse_replaced(stream, lake, ledger.entry.dead_letters_at if ledger.entry else None)
    elif stream.renamed_from and TableLog.open(stream.former_uri(lake)):
        raise TableNotMoved(stream=stream.name, former=stream.former_uri(lake), uri=stream.table_uri(lake))
    return ledger


@dataclass(slots=True)
class _Known:
    asked: tuple[str, int]
    ledger: LedgerState
    marks: tuple[LogMark | None, LogMark | None]
    commits: tuple[LedgerCommit, ...] | None = None


class KnownLedgers:
    """``fresh_ledger`` for who looks again and again: opens a table only if its newest version is another."""

    def __init__(self) -> None:
        self._marks = LogMarks()
        self._known: dict[str, _Known] = {}

    def __call__(self, stream: Stream, lake: str, *, topic_id: str, topic_partitions: int) -> LedgerState | None:
        """The ledger as ``fresh_ledger`` answers it.

        Raises:
            KdiError: As there; a refusal is not remembered.
        """
        known, asked = self._known.get(stream.name), (topic_id, topic_partitions)
        if known and known.asked == asked and known.marks == self._marks_of(stream, lake, known.ledger):
            return known.ledger
        self._known.pop(stream.name, None)
        ledger = fresh_ledger(stream, lake, topic_id=topic_id, topic_partitions=topic_partitions)
        if ledger is None:
            return None
        # Marked after it was read: a commit that came in between has a higher version, and is read at the next look.
        marks = self._marks_of(stream, lake, ledger)
        if marks[0] and marks[0].version == ledger.version:
            self._known[stream.name] = _Known(asked, ledger, marks)
        return ledger

    def recent(self, stream: Stream, lake: str) -> tuple[LedgerCommit, ...]:
        """The newest ledger commits; none where the log cannot be read."""
        known = self._known.get(stream.name)
        try:
            commits = known.commits if known and known.commits is not None else _recent(stream, lake)
        except KdiError:
            return ()
        if known:
            known.commits = commits
        return commits

    def _marks_of(self, stream: Stream, lake: str, ledger: LedgerState) -> tuple[LogMark | None, LogMark | None]:
        letters = ledger.entry.dead_letters_at if ledger.entry else None
        return (
            self._marks.of(stream.table_uri(lake), since=ledger.version),
            self._marks.of(stream.dead_letters_uri(lake), since=letters.version) if letters else None,
        )


def _recent(stream: Stream, lake: str) -> tuple[LedgerCommit, ...]:
    return recent_commits(stream.table_uri(lake), stream.app_id)
