"""Spark's settings for the storage of the lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdi_assets.runtime.errors import LakeNotSafe, OtherLock, OtherLogStore
from kdi_assets.runtime.spark_config import configure_lake, lake_config
from kdi_assets.runtime.spark_jvm import start_spark
from kdi_assets.settings import Settings

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIA-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
    "AWS_SESSION_TOKEN": "token-of-the-test",
}


def at(lake: str, **more: Any) -> Settings:
    """The settings of a lake."""
    return Settings(Path("/srv/kdi"), lake, **more)


@pytest.fixture(autouse=True)
def _of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and a region; no endpoint."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**SECRETS, "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "lake", ["/var/lib/kdi/lake", "file:/lake", "hdfs://n/lake", "abfss://c@a/lake", "gs://b/lake", "s3://bucket/lake"]
)
def test_tables_in_a_folder_commit_by_our_log_store_wherever_the_lake_is(lake: str) -> None:
    assert lake_config(at(lake))["spark.delta.logStore.file.impl"] == "kdi.storage.LinkLogStore"


@pytest.mark.parametrize(
    "lake", ["/var/lib/kdi/lake", "file:/lake", "hdfs://n/lake", "abfss://c@a/lake", "gs://b/lake"]
)
def test_a_lake_elsewhere_has_no_settings_of_s3(lake: str) -> None:
    in_folder = ["spark.sql.streaming.checkpointFileManagerClass"] if "://" not in lake else []
    assert list(lake_config(at(lake))) == ["spark.delta.logStore.file.impl", *in_folder]


@pytest.mark.parametrize("lake", ["s3://bucket/lake", "s3a://bucket/lake"])
def test_a_lake_on_s3_commits_by_our_log_store_and_no_key_is_in_the_settings(lake: str) -> None:
    config = lake_config(at(lake))

    assert config["spark.delta.logStore.s3.impl"] == config["spark.delta.logStore.s3a.impl"]
    assert config["spark.delta.logStore.s3.impl"] == "kdi.storage.ConditionalPutLogStore"
    assert config["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert not any("endpoint" in name and "region" not in name for name in config)
    assert not [secret for secret in SECRETS.values() if secret in str(config)]


def test_a_server_other_than_amazons_is_addressed_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")

    config = lake_config(at("s3://bucket/lake"))

    assert config["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert config["spark.hadoop.fs.s3a.path.style.access"] == "true"


@pytest.mark.parametrize("lake", ["/srv/lake", "s3://bucket/lake"])
def test_a_bucket_with_a_profile_has_its_own_settings_and_no_key_is_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        "[other]\naws_access_key_id = a\naws_secret_access_key = hush\nendpoint_url = https://s3.mine:9000\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    buckets = {"finance": "other", "archive": ""}
    monkeypatch.setenv("KDI_S3_BUCKETS", "finance=other,archive")

    config = lake_config(at(lake, s3_buckets=buckets))

    own = {
        name.removeprefix("spark.hadoop.fs.s3a.bucket."): value for name, value in config.items() if "bucket" in name
    }
    assert own == {
        "finance.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
        "finance.auth.profile.name": "other",
        "finance.auth.profile.file": str(file),
        "finance.endpoint": "https://s3.mine:9000",
        "finance.endpoint.region": "eu-west-1",
        "finance.path.style.access": "true",
    }
    assert config["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert config["spark.delta.logStore.s3.impl"] == "kdi.storage.ConditionalPutLogStore"
    assert "hush" not in str(config)


@pytest.mark.parametrize("scheme", ["wasbs", "oss", "s3n", "ftp"])
def test_a_storage_without_a_safe_log_store_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(LakeNotSafe, match=f"{scheme}://bucket/lake: on {scheme}://"):
        lake_config(at(f"{scheme}://bucket/lake"))


def test_a_lake_is_refused_before_a_jvm_starts(tmp_path: Path) -> None:
    nothing_there = Settings(home=tmp_path, lake="wasbs://bucket/lake", spark_master="local[1]", driver="own")

    with pytest.raises(LakeNotSafe):
        start_spark(nothing_there, config={}, app_name="none")


def test_a_profile_comes_before_a_web_identity_and_after_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def provider() -> str:
        return lake_config(at("s3://bucket/lake"))["spark.hadoop.fs.s3a.aws.credentials.provider"].rpartition(".")[2]

    (tmp_path / "config").write_text("[profile lake]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with_keys = provider()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")

    assert (with_keys, provider()) == ("DefaultCredentialsProvider", "ProfileCredentialsProvider")


def test_requests_are_repeated_for_minutes_and_not_for_days() -> None:
    config = lake_config(at("s3://bucket/lake"))

    pauses = [0.5 * 2**n for n in range(int(config["spark.hadoop.fs.s3a.retry.throttle.limit"]))]
    assert sum(pauses) < 5 * 60
    assert int(config["spark.hadoop.fs.s3a.retry.limit"]) * int(config["spark.hadoop.fs.s3a.attempts.maximum"]) < 10


def test_sparks_own_configuration_counts() -> None:
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False).set("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
    configure_lake(conf, at("s3://bucket/lake"))
    assert conf.get("spark.hadoop.fs.s3a.endpoint.region") == "us-east-1"
    assert conf.get("spark.delta.logStore.s3.impl") == "kdi.storage.ConditionalPutLogStore"


@pytest.mark.parametrize(
    ("lake", "setting", "store", "error"),
    [
        ("s3://bucket/lake", "spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore", OtherLock),
        ("s3://bucket/lake", "spark.delta.logStore.s3a.impl", "io.delta.storage.S3SingleDriverLogStore", OtherLogStore),
        ("s3://bucket/lake", "spark.delta.logStore.class", "io.delta.storage.S3SingleDriverLogStore", OtherLogStore),
        ("/srv/lake", "spark.delta.logStore.file.impl", "io.delta.storage.HDFSLogStore", OtherLogStore),
        ("/srv/lake", "spark.delta.logStore.class", "io.delta.storage.HDFSLogStore", OtherLogStore),
    ],
)
def test_another_log_store_of_sparks_own_configuration_is_refused(
    lake: str, setting: str, store: str, error: type[Exception]
) -> None:
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False).set(setting, store)

    with pytest.raises(error, match=f"{setting} is {store}"):
        configure_lake(conf, at(lake))
