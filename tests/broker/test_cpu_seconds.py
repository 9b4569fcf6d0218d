"""The CPU seconds that commits record, beside those that the system counts."""

from __future__ import annotations

from contextlib import suppress

import psutil

from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.follow.refine.refine import refine
from kdi_assets.streams.replay.replay_letters import discard_letters
from tests.conftest import DrivenFactory


def cpu_seconds_of_all() -> float:
    """User and system time of this process and its JVM."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def test_each_commit_records_what_it_used_and_together_not_more_than_there_was(driven: DrivenFactory) -> None:
    """Procedure: two drains, one with dead letters; discard these; refine. Pass: the sum is below the system's."""
    web = driven(partitions=2)
    before = cpu_seconds_of_all()

    web.produce(300, bad=0.1)
    reports = [web.drain()]
    web.produce(200, seed=1)
    reports.append(web.drain())
    discarded = discard_letters(web.stream, lake=web.lake, session=web.session, decided_by="me", because="a test")
    copy = RefinedTableSpec("silver/copy", (Upstream(web.stream.table),))
    refined = refine(copy, lake=web.lake, session=web.session).entry

    used = cpu_seconds_of_all() - before
    drains = [entry for entry in web.entries() if entry.kind == "drain"]
    recorded = [drain.cpu_seconds or 0.0 for drain in drains]
    others = [discarded.commit and discarded.commit.cpu_seconds, refined.cpu_seconds]
    assert min(recorded) > 0
    assert all(entry <= report.cpu_seconds for entry, report in zip(recorded, reports, strict=True))
    assert [bool(seconds) for seconds in others] == [True, True]
    assert sum(recorded) + sum(seconds or 0.0 for seconds in others) <= used + 0.1, "the system counts in hundredths"
    assert [drain.files_added > 0 for drain in drains] == [True, True]
    assert (refined.files_added > 0, refined.bytes_added > 0) == (True, True)
