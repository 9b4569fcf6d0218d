"""Tables below two roots: a stream's own one, and KDI_LAKE for what is made of it."""

from __future__ import annotations

import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest
from deltalake import DeltaTable

from kdi_assets.delta.errors import TableNotMoved
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import open_delta_table
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.erase.downstream import Downstream, follow_erasure
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep
from kdi_assets.runtime.spark_config import lake_config
from kdi_assets.settings import Settings
from kdi_assets.tools.local.s3_server import REGION, S3Server, start_s3_server
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.refined import refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILE = "of-the-other"


@pytest.fixture(scope="session")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that the environment does not name."""
    server = start_s3_server(tmp_path_factory.mktemp("other-s3"))
    yield server
    server.stop()


@pytest.fixture
def other_bucket(other_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> str:
    """The URI of a bucket there, which only a profile of its own reaches."""
    uri = other_server.create_bucket(f"other-{uuid.uuid4().hex[:12]}")
    (tmp_path / "credentials").write_text(
        f"[{PROFILE}]\naws_access_key_id = k\naws_secret_access_key = s\n"
        f"region = {REGION}\nendpoint_url = {other_server.endpoint}\n"
    )
    buckets = {uri.removeprefix("s3://"): PROFILE}
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("KDI_S3_BUCKETS", ",".join(f"{bucket}={profile}" for bucket, profile in buckets.items()))
    set_in(spark, lake_config(Settings(tmp_path, str(tmp_path), s3_buckets=buckets)))
    return uri


def set_in(spark: SparkSession, config: Mapping[str, str]) -> None:
    """Let the session of the test process have settings for which it is too old."""
    for name, value in config.items():
        cast("Any", spark.sparkContext._jsc).hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)


def copy_of(web: DrivenStream) -> RefinedTableSpec:
    """A refined table below KDI_LAKE, of the stream's."""
    made = refined_table(**{"table": "silver/copy", "from": web.stream.table})
    return replace(made, upstreams=tuple(replace(upstream, lake=web.stream.lake) for upstream in made.upstreams))


def test_a_stream_below_another_folder_is_drained_refined_served_erased_kept_and_audited(
    driven: DrivenFactory, lake: str, tmp_path: Path
) -> None:
    """Purpose: whoever works on a table finds it below its own root.
    Procedure: drain into another root; refine below KDI_LAKE, serve; erase, upkeep, audits.
    Pass: every offset is once in the table or the dead letters there, nothing of the stream is below KDI_LAKE, and what
        follows it has its rows.
    """
    assert_all_find(driven, lake, str(tmp_path / "other"), tmp_path)


@also_on_s3
def test_the_same_holds_for_a_bucket_that_only_a_profile_of_its_own_reaches(
    driven: DrivenFactory, lake: str, other_bucket: str, tmp_path: Path
) -> None:
    """KDI_LAKE is a folder, or a bucket of another server, for which the environment has the settings."""
    assert_all_find(driven, lake, f"{other_bucket}/lake", tmp_path)


def assert_all_find(driven: DrivenFactory, lake: str, other: str, tmp_path: Path) -> None:
    """Do everything with a stream below another root."""
    web = driven(lake=other, upkeep=Upkeep(small_files=2))
    copy = copy_of(web)
    served = ServedTableSpec(
        copy.table, DuckDb(file=str(tmp_path / "served.duckdb"), table="copy"), keys=("uuid",), columns=("uuid",)
    )

    for seed in (1, 2, 3):
        produced = web.produce(60, bad=0.2, seed=seed)
        web.drain()
        refine(copy, lake=lake, session=web.session)
    web.assert_each_offset_once(produced)
    serve(served, lake=lake, session=web.session, home=tmp_path)
    someone = web.rows("uuid")[0]
    erase(web.stream, lake=lake, session=web.session, chosen=EraseFilter(where=f"uuid = '{someone}'"))
    followed = list(
        follow_erasure(
            Downstream((copy,), (served,)), lake=lake, session=web.session, where=f"uuid = '{someone}'", home=tmp_path
        )
    )
    soon = datetime.now(UTC) + timedelta(days=2)
    kept = keep_document(web.stream, lake, plan_upkeep(web.stream, lake, now=soon), session=web.session, now=soon)

    assert [one.error for one in followed] == [None, None]
    assert TableLog.open(web.stream.erased_uri(lake)) is not None
    rows = open_delta_table(web.uri).to_pyarrow_table().num_rows
    assert web.uri == f"{other}/{web.stream.table}"
    assert TableLog.open(f"{lake}/{web.stream.table}") is None
    assert TableLog.open(f"{other}/{copy.table}") is None
    assert open_delta_table(copy.table_uri(lake)).to_pyarrow_table().num_rows == rows > 0
    with duckdb.connect(str(tmp_path / "served.duckdb"), read_only=True) as file:
        assert file.execute("SELECT count(*) FROM copy").fetchone() == (rows,)
    assert not kept.all_errors and kept.tables[0].table == web.stream.name
    assert web.audit().complete
    assert audit_refined(copy, lake=lake, session=web.session, everything=True).equal
    assert read_backlog(web.stream, lake).offsets == 0


def test_a_stream_whose_root_changed_goes_on_where_it_was_once_its_folders_are_moved(
    driven: DrivenFactory, tmp_path: Path
) -> None:
    web = driven()
    web.produce(40, bad=0.2, seed=1)
    web.drain()
    moved = web.with_definition(lake=str(tmp_path / "third"))

    with pytest.raises(TableNotMoved, match="where it would start over") as refused:
        moved.drain()
    for command in refused.value.message_parts()[2].split("; then "):
        subprocess.run(shlex.split(command), check=True)
    produced = web.produce(40, bad=0.2, seed=2)
    moved.drain()

    moved.assert_each_offset_once(produced)
    assert DeltaTable(moved.uri).version() == 2
