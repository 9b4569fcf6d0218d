"""Processes of Spark and delta-rs that commit to one table in S3 at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.settings import Settings
from kdi_assets.tools.local.s3_server import S3Server
from tests.faults.storage.s3_race import DELTAS_STORE, Race, run


@pytest.mark.scenario("two drivers at once")
def test_a_version_is_won_once_whatever_is_killed_dropped_or_refused(
    bucket: str, s3_server: S3Server, settings: Settings, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Purpose: the storage decides who wrote a version; a writer must never believe otherwise.
    Procedure: three Spark and two delta-rs processes append rows to one table; one of them is killed every few seconds,
    a tenth of all puts gets no answer, and the storage refuses some commits with 409.
    Pass: each acknowledged row is there once, each other row at most once; each of Spark's versions is a row.
    """
    race = Race(commits=100, limit_seconds=200, seed=pytestconfig.getoption("--seed"))

    outcome = run(race, s3_server, f"{bucket}/lake/table", tmp_path, settings.home)

    assert (outcome.lost, outcome.doubled, outcome.unknown) == (set(), set(), set()), str(outcome)
    # delta-rs commits a file again if the answer to its first commit was lost; the row is then there once all the same.
    assert outcome.sparks_versions == outcome.sparks_rows > 0, str(outcome)
    assert outcome.kills > 0 < outcome.dropped, str(outcome)


def test_deltas_own_store_loses_rows_in_such_a_race(
    bucket: str, s3_server: S3Server, settings: Settings, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Each of Spark's commits is held for so long that delta-rs has written its version: the race must see the loss."""
    race = Race(
        commits=20,
        drop=0,
        conflict=0,
        kill_seconds=0,
        hold_seconds=4,
        log_store=DELTAS_STORE,
        limit_seconds=100,
        seed=pytestconfig.getoption("--seed"),
    )

    outcome = run(race, s3_server, f"{bucket}/lake/table", tmp_path, settings.home)

    assert outcome.lost, f"the race would not see a loss: {outcome}"
