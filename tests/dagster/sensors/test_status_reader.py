"""When the state of a follower is read again."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.delta.errors import StorageFailed
from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineKind
from kdi_assets.follow.refine.errors import ChangedByOthers, UpstreamMissing
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.monitoring.refined_status import RefinedStatus
from kdi_assets.sensors.followers import RefinedFollower, ServedFollower, StatusReader
from tests.dagster.refined_world import BRONZE, SILVER, committed

OLD = date(2021, 3, 4)
MISSING = UpstreamMissing(table=SILVER.name, upstream=BRONZE.table, uri="/lake/bronze")
DECIDE = ChangedByOthers(table=SILVER.name, uri="/lake", version=4, operation="DELETE")


def test_a_status_is_read_again_only_after_a_commit(lake_in_environment: str) -> None:
    committed(lake_in_environment, SILVER, {OLD: 1}, version=0)
    reads: list[str] = []

    def read(table: RefinedTableSpec, lake: str) -> RefinedStatus:
        reads.append(table.name)
        return RefinedStatus(table, RefinePlan("", len(reads) - 1, "id", (), "nothing"))

    reader, silver = StatusReader(LatestVersions()), RefinedFollower(SILVER, read)
    for _ in range(3):
        reader(silver, lake_in_environment)
    assert len(reads) == 1
    committed(lake_in_environment, SILVER, {OLD: 1}, version=1)

    for _ in range(3):
        reader(silver, lake_in_environment)

    assert len(reads) == 2


@pytest.mark.parametrize(
    ("refusal", "kind", "reads"),
    [
        (None, "nothing", 1),
        (None, "changes", 1),
        (DECIDE, "nothing", 1),
        (MISSING, "nothing", 9),
        (StorageFailed(uri="/lake", detail="it does not answer"), "nothing", 3),
    ],
    ids=["up to date", "behind", "refused", "upstream missing", "no answer"],
)
def test_what_nothing_changes_is_not_read_again_and_what_does_not_answer_after_a_while(
    lake_in_environment: str, refusal: KdiError | None, kind: RefineKind, reads: int
) -> None:
    """Procedure: nine looks, eight seconds apart; the wait doubles from ten seconds."""
    for table in (SILVER.table, BRONZE.table):
        write_deltalake(f"{lake_in_environment}/{table}", pa.table({"id": [1]}))
    asked, now = list[str](), 0.0

    def read(table: RefinedTableSpec, lake: str) -> RefinedStatus:
        asked.append(table.name)
        plan = None if refusal else RefinePlan("", 0, "id", (), kind)
        return RefinedStatus(table, plan, refusal=refusal)

    reader, silver = StatusReader(LatestVersions(), clock=lambda: now), RefinedFollower(SILVER, read)
    for _ in range(9):
        reader(silver, lake_in_environment)
        now += 8

    assert len(asked) == reads


def test_a_database_is_asked_again_after_ten_minutes(lake_in_environment: str, tmp_path: Path) -> None:
    """Someone may have restored it, and no commit of the Delta table shows that."""
    into, now = DuckDb(file=str(tmp_path / "usage.duckdb"), table="usage"), 0.0
    served = ServedTableSpec(table=BRONZE.table, into=into, keys=("id",))
    write_deltalake(served.table_uri(lake_in_environment), pa.table({"id": [1]}))
    serve(served, lake=lake_in_environment, session=pytest.fail, home=tmp_path)
    reader, follower = StatusReader(LatestVersions(), clock=lambda: now), ServedFollower(served)
    before = reader(follower, lake_in_environment)
    (tmp_path / "usage.duckdb").unlink()

    soon = reader(follower, lake_in_environment)
    now = 600.0
    later = reader(follower, lake_in_environment)

    assert (before.is_behind, soon.is_behind, later.is_behind) == (False, False, True)
