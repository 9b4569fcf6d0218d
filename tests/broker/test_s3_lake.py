"""A lake in an S3 bucket: the same drains, with commits by conditional put."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.operate.monitoring.ledger_cache import LedgerCache, RecentCommits
from kdi_assets.runtime.spark_config import lake_config
from kdi_assets.settings import Settings
from tests.conftest import DrivenFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


@pytest.mark.core
def test_each_message_is_once_in_the_table_or_the_dead_letters_of_a_lake_on_s3(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(200, bad=0.1, seed=1)

    first = web.drain()
    produced = web.produce(100, bad=0.1, seed=2)
    second = web.drain()

    web.assert_each_offset_once(produced)
    assert first.rows_added > second.rows_added > 0
    assert first.dead_letters > 0 < second.dead_letters
    assert web.uri.startswith("s3://")


def test_the_newest_commits_of_several_tables_are_read_at_the_same_time(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: the lag sensor does not wait for the storage once for each stream with a backlog.
    Procedure: two streams with a message each; the reads of their commits wait for each other.
    Pass: they meet, and both backlogs are known.
    """
    streams, both = [driven(partitions=1), driven(partitions=1)], Barrier(2)
    for web in streams:
        web.produce(1)
    read = LedgerCache.recent

    def recent(self: LedgerCache, stream: Stream, lake: str) -> RecentCommits:
        both.wait(20)
        return read(self, stream, lake)

    monkeypatch.setattr(LedgerCache, "recent", recent)
    backlogs = read_backlogs([web.stream for web in streams], lake=streams[0].lake)

    assert [b.offsets for b in backlogs] == [1, 1]


@pytest.mark.parametrize("profile", ["lake", "other"])
def test_a_profile_has_the_keys_of_sparks_client(
    spark: SparkSession, s3_lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """Procedure: a file with the keys of the profile ``lake``; look for an object with the settings for AWS_PROFILE.
    Pass: the client gets an answer with this profile, and has no keys with another.
    """
    setting = "spark.hadoop.fs.s3a.aws.credentials.provider"
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    jvm = cast("Any", spark._jvm)
    properties, conf = (
        jvm.java.lang.System,
        jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration()),
    )
    conf.set(setting.removeprefix("spark.hadoop."), lake_config(Settings(tmp_path, s3_lake))[setting])
    of_the_test = {"aws.profile": profile, "aws.sharedCredentialsFile": str(tmp_path / "credentials")}
    for name, value in of_the_test.items():
        properties.setProperty(name, value)

    try:
        path = jvm.org.apache.hadoop.fs.Path(f"{s3_lake}/none")
        files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), conf)
        if profile == "lake":
            assert not files.exists(path)
        else:
            with pytest.raises(Py4JJavaError, match="other"):
                files.exists(path)
    finally:
        for name in of_the_test:
            properties.clearProperty(name)
