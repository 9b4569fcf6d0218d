"""Where the credentials, region and endpoint of a lake on S3 come from: AWS's usual settings, without any of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from kdi_assets.delta import single_commit
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.object_storage import object_storage
from kdi_assets.delta.single_commit import CommitRequest
from kdi_assets.delta.storage import table_file_system
from kdi_assets.delta.transaction import Staged
from kdi_assets.delta.versions import LatestVersions
from kdi_assets.runtime.errors import CredentialsMissing, CredentialsRefused, OtherLock
from kdi_assets.runtime.s3_access import delta_rs_options, s3_client
from kdi_assets.settings import Settings
from kdi_assets.tools.local.s3_server import REGION, S3Server

TABLE = "s3://bucket/lake/table"
# Opens a table and shows the options of two openings in a row; the second one comes later.
OPENS = (
    "import json, sys; from kdi_assets.runtime.s3_access import delta_rs_options as of;"
    "from kdi_assets.delta.log import TableLog; uri = sys.argv[1];"
    "print(json.dumps([of(uri), TableLog.existing(uri).version, of(uri)]))"
)


@pytest.fixture
def table(bucket: str) -> str:
    """A table with one commit."""
    from deltalake import write_deltalake

    uri = f"{bucket}/lake/table"
    write_deltalake(uri, pa.table({"number": [1]}), storage_options=delta_rs_options(uri))
    return uri


def opened_with(profile: str, *, config: str, table: str, server: S3Server, folder: Path) -> list[Any]:
    """Open the table in a process that has only the profile."""
    file = folder / "config"
    file.write_text(config)
    own: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_PROFILE": profile,
        "AWS_CONFIG_FILE": str(file),
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_STS": server.endpoint,
    }
    ended = subprocess.run([sys.executable, "-c", OPENS, table], env=own, capture_output=True, text=True, check=True)
    answer: list[Any] = json.loads(ended.stdout)
    return answer


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_keys_region_and_an_endpoint_without_tls_are_all_that_a_user_sets(
    table: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    uri = table.replace("s3:", f"{scheme}:")

    log = TableLog.existing(uri)

    assert log.version == 0
    assert log.commit(0).operation == "WRITE"
    assert set(log.commit_files()) == {0}
    assert table_file_system(uri).get_file_info("_delta_log").is_file is False


def test_a_role_is_assumed_and_its_session_reaches_delta_rs(table: str, s3_server: S3Server, tmp_path: Path) -> None:
    config = (
        f"[profile lake]\nrole_arn = arn:aws:iam::000000000000:role/lake\nsource_profile = person\n"
        f"region = {REGION}\nendpoint_url = {s3_server.endpoint}\n"
        "[profile person]\naws_access_key_id = persons-key\naws_secret_access_key = persons-secret\n"
    )

    options, version, _ = opened_with("lake", config=config, table=table, server=s3_server, folder=tmp_path)

    assert version == 0
    assert options["aws_access_key_id"] != "persons-key"
    assert options["aws_session_token"]
    assert options["aws_region"] == REGION


def test_credentials_that_expire_are_read_again(table: str, s3_server: S3Server, tmp_path: Path) -> None:
    script = tmp_path / "credentials.py"
    script.write_text(
        "import datetime, json, os; soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'key-{os.getpid()}', 'SecretAccessKey': 'secret',"
        " 'SessionToken': 'token', 'Expiration': soon.isoformat()}))"
    )
    config = (
        f"[profile lake]\ncredential_process = {sys.executable} {script}\n"
        f"region = {REGION}\nendpoint_url = {s3_server.endpoint}\n"
    )

    first, version, later = opened_with("lake", config=config, table=table, server=s3_server, folder=tmp_path)

    assert version == 0
    assert first["aws_access_key_id"] != later["aws_access_key_id"]


def test_a_lock_through_dynamodb_is_refused(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")

    with pytest.raises(OtherLock, match="AWS_S3_LOCKING_PROVIDER is dynamodb"):
        TableLog.open(table)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for AWS's files ``config`` and ``credentials``; the environment has nothing else of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", REGION)
    return tmp_path


@pytest.mark.usefixtures("files")
def test_no_credentials_at_all_are_named() -> None:
    storage = object_storage(TABLE)
    assert storage is not None

    for ask in (lambda: delta_rs_options(TABLE), lambda: storage.read("_kdi/thing")):
        with pytest.raises(CredentialsMissing, match="no AWS credentials"):
            ask()


EXPIRED = json.dumps({"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "s", "Expiration": "2020-01-01T00:00:00Z"})
SSO = "sso_start_url = https://none/start\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = none"


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ("[profile other]", CredentialsRefused, "profile.*lake.*could not be found"),
        (f"[profile lake]\n{SSO}", CredentialsRefused, "SSO"),
        ("[profile lake]\ncredential_process = /no/such/program", CredentialsRefused, "/no/such/program"),
        (f"[profile lake]\ncredential_process = echo '{EXPIRED}'", CredentialsRefused, "still expired"),
        ("[profile lake]\ncredential_process = false", CredentialsMissing, "custom-process"),
    ],
)
def test_credentials_that_cannot_be_had_are_an_error_of_ours_and_a_look_finds_nothing(
    files: Path, monkeypatch: pytest.MonkeyPatch, config: str, error: type[Exception], said: str
) -> None:
    (files / "config").write_text(config)
    monkeypatch.setenv("AWS_PROFILE", "lake")

    for ask in (lambda: delta_rs_options(TABLE), lambda: TableLog.open(TABLE)):
        with pytest.raises(error, match=said):
            ask()

    assert LatestVersions().of(TABLE, since=0) is None


def test_keys_that_a_login_writes_into_a_file_count_at_once(files: Path) -> None:
    def keys(minute: int) -> tuple[str, str]:
        file = files / "credentials"
        file.write_text(f"[default]\naws_access_key_id = of-{minute}\naws_secret_access_key = s\n")
        os.utime(file, (minute * 60, minute * 60))
        client = s3_client(TABLE, retries=1)
        return (delta_rs_options(TABLE) or {})["aws_access_key_id"], client._get_credentials().access_key

    assert keys(1) == ("of-1", "of-1")
    assert keys(2) == ("of-2", "of-2")
    assert s3_client(TABLE, retries=1) is s3_client(TABLE, retries=1)


@pytest.mark.usefixtures("files")
def test_a_commit_whose_answer_is_lost_keeps_its_error_if_the_log_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unanswered(*_: object) -> int:
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(single_commit, "send_commit", unanswered)
    request = CommitRequest(TABLE, "table", "try", lambda version: {}, lambda version: "")

    with pytest.raises(ConnectionError, match="the answer was lost"):
        single_commit.commit_once(cast("Any", None), None, Staged(), request, 1)


def test_a_table_elsewhere_needs_no_options_and_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")

    assert delta_rs_options("/srv/lake/table") is None
    assert delta_rs_options("abfss://container@account.dfs.core.windows.net/lake/table") is None


def test_boto3_takes_the_same_region_and_endpoint(bucket: str, s3_server: S3Server) -> None:
    client = s3_client(TABLE, retries=1)

    assert (client.meta.region_name, client.meta.endpoint_url) == (REGION, s3_server.endpoint)


OF_OTHER = "[other]\naws_access_key_id = other-key\naws_secret_access_key = other-secret\n"
OTHER = "s3://finance/lake/table"


@pytest.fixture
def of_most(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with keys and an endpoint of most buckets, and a profile for the bucket ``finance``."""
    variables = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "KDI_S3_BUCKETS": "archive,finance=other",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return files


def test_a_bucket_with_a_profile_of_its_own_takes_nothing_from_the_environment(
    of_most: Path, s3_server: S3Server
) -> None:
    """The environment names an endpoint where nothing answers."""
    from deltalake import write_deltalake

    (of_most / "credentials").write_text(f"{OF_OTHER}region = {REGION}\nendpoint_url = {s3_server.endpoint}\n")
    uri = OTHER.replace("finance", s3_server.create_bucket("finance").removeprefix("s3://"))

    write_deltalake(uri, pa.table({"number": [1]}), storage_options=delta_rs_options(uri))
    options, client = delta_rs_options(uri) or {}, s3_client(uri, retries=1)

    assert TableLog.existing(uri).version == 0
    assert (options["aws_access_key_id"], options["aws_region"]) == ("other-key", REGION)
    assert (client.meta.endpoint_url, client.meta.region_name) == (s3_server.endpoint, REGION)
    for usual in (TABLE, "s3://archive/lake/table"):
        assert (delta_rs_options(usual) or {})["aws_endpoint_url_s3"] == "http://127.0.0.1:1"
        assert s3_client(usual, retries=1).meta.endpoint_url == "http://127.0.0.1:1"


def test_a_profile_without_an_endpoint_is_of_aws_even_if_most_buckets_are_not(of_most: Path) -> None:
    (of_most / "credentials").write_text(f"{OF_OTHER}region = eu-west-3\n")

    assert (delta_rs_options(OTHER) or {})["aws_endpoint_url_s3"] == "https://s3.eu-west-3.amazonaws.com"
    assert s3_client(OTHER, retries=1).meta.endpoint_url == "https://s3.eu-west-3.amazonaws.com"


def test_a_session_token_of_the_environment_is_not_sent_with_the_keys_of_a_profile(
    of_most: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (of_most / "credentials").write_text(OF_OTHER)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the environment")

    with pytest.raises(CredentialsRefused, match="AWS_SESSION_TOKEN of the environment with the keys of other"):
        delta_rs_options(OTHER)


def test_a_profile_of_a_bucket_that_sparks_client_would_not_find_is_refused(of_most: Path) -> None:
    (of_most / "config").write_text(OF_OTHER.replace("[other]", "[profile other]"))

    with pytest.raises(CredentialsRefused, match=r"credentials has no section \[other\], which KDI_S3_BUCKETS names"):
        delta_rs_options(OTHER)


@pytest.mark.parametrize("text", ["Finance", "finance=", "finance,finance=x", "s3://finance"])
def test_buckets_that_are_no_list_of_buckets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="KDI_S3_BUCKETS has"):
        Settings.from_environment({"KDI_S3_BUCKETS": text})
