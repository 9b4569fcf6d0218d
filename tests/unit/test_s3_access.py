"""Where the credentials, region and endpoint of a lake on S3 come from: AWS's usual settings, without any of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.dev.s3_server import REGION, S3Server
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.storage import table_folder
from kdi_assets.runtime.errors import CredentialsMissing, OtherLock
from kdi_assets.runtime.s3_access import delta_rs_options, s3_client

# Opens a table and shows the options of two openings in a row; the second one comes later.
OPENS = (
    "import json, sys; from kdi_assets.runtime.s3_access import delta_rs_options as of;"
    "from kdi_assets.ledger.delta_log import TableLog; uri = sys.argv[1];"
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
    assert table_folder(uri).get_file_info("_delta_log").is_file is False


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


def test_no_credentials_at_all_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(CredentialsMissing, match="no AWS credentials"):
        delta_rs_options("s3://bucket/lake/table")


def test_a_table_elsewhere_needs_no_options_and_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")

    assert delta_rs_options("/srv/lake/table") is None
    assert delta_rs_options("abfss://container@account.dfs.core.windows.net/lake/table") is None


def test_boto3_takes_the_same_region_and_endpoint(bucket: str, s3_server: S3Server) -> None:
    client = s3_client(retries=1)

    assert (client.meta.region_name, client.meta.endpoint_url) == (REGION, s3_server.endpoint)
