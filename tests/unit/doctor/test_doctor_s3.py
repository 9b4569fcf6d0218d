"""What `kdi doctor` says about a lake on S3 with one fault, and what is refused before the first commit on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from kdi_assets.delta.errors import PutIfAbsentMissing, StorageRefused
from kdi_assets.delta.object_storage import PROOF, prove_conditional_put
from kdi_assets.operate.doctor.doctor import Examination, side_by_side
from kdi_assets.operate.doctor.finding import Finding, Verdict
from kdi_assets.operate.doctor.storage import storage
from tests.storage.object_store import ObjectStore, object_store


@pytest.fixture
def store(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A small S3 with the faults that the server of the tests does not have; the environment names it."""
    with object_store(ObjectStore()) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.endpoint)
        yield faulty


def examined(lake: str) -> dict[str, Finding]:
    """The findings by the names of the examinations."""
    found = side_by_side([Examination("storage", lake, lambda: storage(lake))], seconds=20)
    return {finding.examination: finding for finding in found}


def the_fault(lake: str) -> Finding:
    """The only line that is not ok."""
    (fault,) = [finding for finding in examined(lake).values() if finding.verdict is not Verdict.OK]
    return fault


def test_a_bucket_that_has_everything_is_fine(bucket: str) -> None:
    found = examined(f"{bucket}/lake")

    assert {name: finding.verdict for name, finding in found.items()} == dict.fromkeys(
        ("region", "storage", "clock"), Verdict.OK
    )


@pytest.mark.parametrize(
    ("setting", "of", "found", "says"),
    [
        pytest.param(
            {"AWS_REGION": "us-west-2"},
            "",
            "wrong region",
            ("the bucket is in eu-central-1, and our settings name us-west-2", "export AWS_REGION=eu-central-1"),
            id="another region",
        ),
        pytest.param(
            {}, "s3://no-such-bucket", "storage refused", ("create the bucket, or correct KDI_LAKE",), id="no bucket"
        ),
        pytest.param(
            {"AWS_PROFILE": "no-such-profile"}, "", "credentials refused", ("no-such-profile",), id="no profile"
        ),
        pytest.param({"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, "", "other lock", (), id="a lock through DynamoDB"),
    ],
)
def test_a_wrong_setting_is_named(
    bucket: str, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], of: str, found: str, says: tuple[str, ...]
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)

    fault = the_fault(f"{of or bucket}/lake")

    assert (fault.verdict, fault.found) == (Verdict.WRONG, found)
    assert [text for text in says if text not in str(fault.trouble)] == []


RIGHTS = "s3:PutObject and s3:DeleteObject below s3://bucket/lake"


@pytest.mark.parametrize(
    ("name", "value", "verdict", "found", "says"),
    [
        pytest.param(
            "refused",
            {"PUT": (403, "AccessDenied")},
            Verdict.WRONG,
            "storage refused",
            ("refuses to write", RIGHTS),
            id="no right to put",
        ),
        pytest.param(
            "conditions",
            "ignored",
            Verdict.WRONG,
            "put if absent missing",
            ("use a storage with conditional put",),
            id="no conditional put",
        ),
        pytest.param(
            "ahead",
            timedelta(minutes=5),
            Verdict.WARNING,
            "clock skewed",
            ("timedatectl",),
            id="a clock five minutes off",
        ),
    ],
)
def test_a_fault_of_the_storage_is_named(
    store: ObjectStore, name: str, value: object, verdict: Verdict, found: str, says: tuple[str, ...]
) -> None:
    setattr(store, name, value)

    fault = the_fault("s3://bucket/lake")

    assert (fault.verdict, fault.found) == (verdict, found)
    assert [text for text in says if text not in str(fault.trouble)] == []


def test_the_proof_stays_in_the_lake_and_is_repeated_by_one_put(bucket: str) -> None:
    for _ in range(2):
        prove_conditional_put(f"{bucket}/lake")

    listed = boto3.client("s3").list_objects_v2(Bucket=bucket.removeprefix("s3://"))
    assert [thing["Key"] for thing in listed["Contents"]] == [f"lake/{PROOF}"]


@pytest.mark.parametrize("conditions", ["raced", "ignored", "unknown"])
def test_a_lake_without_conditional_put_gets_no_first_commit_and_no_proof(store: ObjectStore, conditions: str) -> None:
    store.conditions = conditions  # type: ignore[assignment]

    for _ in range(2):
        with pytest.raises(PutIfAbsentMissing):
            prove_conditional_put("s3://bucket/lake")

    assert store.objects == {}


def test_a_lake_that_takes_no_object_gets_no_first_commit(store: ObjectStore) -> None:
    store.refused = {"PUT": (403, "AccessDenied")}

    with pytest.raises(StorageRefused, match="AccessDenied"):
        prove_conditional_put("s3://bucket/lake")


def test_a_local_lake_needs_no_proof(tmp_path: Path) -> None:
    prove_conditional_put(str(tmp_path / "lake"))

    assert list(tmp_path.iterdir()) == []
