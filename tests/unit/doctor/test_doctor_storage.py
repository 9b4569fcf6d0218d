"""What `kdi doctor` finds about a lake's storage: real folders, and a real S3 client against a small S3."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kdi_assets.delta.errors import PutIfAbsentMissing, StorageRefused, StorageUnanswered
from kdi_assets.delta.object_storage import object_storage
from kdi_assets.operate.doctor.finding import Finding, Verdict
from kdi_assets.operate.doctor.probe import LocalStorage
from kdi_assets.operate.doctor.storage import Storage, examined, storage
from kdi_assets.runtime.errors import LakeNotSafe, LakeOfOtherFileSystem
from tests.storage.object_store import ObjectStore, object_store

S3_LAKE = "s3a://bucket/lake"

Findings = Callable[[], list[Finding]]


def verdicts(findings: Sequence[Finding]) -> dict[str, Verdict]:
    return {f.examination: f.verdict for f in findings}


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[ObjectStore, Storage]]:
    """A small S3, and a client of it, which takes half a second to make."""
    with object_store(ObjectStore()) as store, pytest.MonkeyPatch.context() as patch:
        own = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": store.endpoint}
        nobodys = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        for name, value in {**own, **nobodys, "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-west-1"}.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        client = object_storage(S3_LAKE)
        assert client is not None
        yield store, client


@pytest.fixture
def store(bucket: tuple[ObjectStore, Storage]) -> ObjectStore:
    """The bucket, empty and without faults."""
    bucket[0].behave()
    return bucket[0]


@pytest.fixture
def findings(bucket: tuple[ObjectStore, Storage]) -> Findings:
    """Examines the bucket."""
    return lambda: list(examined(bucket[1], S3_LAKE))


@pytest.mark.parametrize("made", [True, False])
def test_of_two_creators_in_a_folder_one_wins_and_nothing_is_left(tmp_path: Path, made: bool) -> None:
    lake = tmp_path / "lake"
    if made:
        lake.mkdir()

    findings = list(storage(str(lake)))

    assert verdicts(findings) == {"storage": Verdict.OK, "clock": Verdict.OK}
    assert [path for path in tmp_path.rglob("*") if path != lake] == []
    assert lake.exists() == made


def test_a_lake_that_is_a_file_is_refused_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("not a folder")

    with pytest.raises(StorageRefused, match="refuses to write an object.*Not a directory"):
        list(storage(f"file://{tmp_path}/lake"))


@pytest.mark.parametrize(
    ("lake", "default", "verdict"),
    [
        ("{folder}", "hdfs://namenode.example:8020", Verdict.WRONG),
        ("file://{folder}", "hdfs://namenode.example:8020", Verdict.OK),
        ("{folder}", "file:///", Verdict.OK),
    ],
)
def test_a_path_is_wrong_where_hadoops_configuration_takes_it_for_hdfs(
    tmp_path: Path, lake: str, default: str, verdict: Verdict
) -> None:
    configuration = tmp_path / "configuration"
    configuration.mkdir()
    (configuration / "core-site.xml").write_text(
        f"<configuration><property><name>fs.defaultFS</name><value>{default}</value></property></configuration>"
    )

    found = list(storage(lake.format(folder=tmp_path / "lake"), environment={"HADOOP_CONF_DIR": str(configuration)}))

    assert verdicts(found)["storage"] is verdict
    if verdict is Verdict.WRONG:
        assert isinstance(found[0].trouble, LakeOfOtherFileSystem)
        assert f"KDI_LAKE as a URI: file://{tmp_path}/lake" in str(found[0].trouble)


def test_a_scheme_that_every_drain_refuses_is_wrong() -> None:
    (found,) = storage("hfds://namenode.example:8020/lake", environment={})

    assert found.verdict is Verdict.WRONG
    assert isinstance(found.trouble, LakeNotSafe)


class Careless(LocalStorage):
    """A mount that overwrites, and reports success to both writers."""

    def create(self, name: str, content: bytes) -> bool:
        self._path(name).write_bytes(content)
        return True


def test_a_mount_on_which_both_creators_win_is_wrong_and_the_probe_goes(tmp_path: Path) -> None:
    findings = list(examined(Careless(tmp_path), str(tmp_path)))

    assert verdicts(findings) == {"storage": Verdict.WRONG, "clock": Verdict.OK}
    assert "2 succeeded" in str(findings[0].trouble)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_folder_without_hard_links_is_a_warning_that_says_one_driver_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setattr(os, "link", refusing(answer))

    (finding,) = storage(str(tmp_path))

    assert (finding.verdict, finding.found) == (Verdict.WARNING, "no hard links")
    assert "only one driver at a time" in str(finding.trouble)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_folder_whose_disk_refuses_a_link_is_not_taken_for_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setattr(os, "link", refusing(answer))

    with pytest.raises(StorageRefused, match=os.strerror(answer)):
        list(storage(str(tmp_path)))

    assert list(tmp_path.iterdir()) == []


def refusing(answer: int) -> Callable[..., None]:
    """A call of the system that fails so."""

    def call(*_: object, **__: object) -> None:
        raise OSError(answer, os.strerror(answer))

    return call


@pytest.mark.parametrize(("ours_seconds", "said"), [(-90, "1 min 30 s ahead of"), (90, "1 min 30 s behind")])
def test_a_storage_whose_clock_is_off_is_a_warning(tmp_path: Path, ours_seconds: int, said: str) -> None:
    skewed = list(storage(str(tmp_path), clock=lambda: time.time() + ours_seconds))[1]
    right = list(storage(str(tmp_path), clock=lambda: time.time() + 50 * (ours_seconds // 90)))[1]

    assert skewed.verdict is Verdict.WARNING
    assert skewed.found == "clock skewed"
    assert said in str(skewed.trouble).replace("1 min 29 s", "1 min 30 s")
    assert right.verdict is Verdict.OK


def test_a_kind_of_storage_without_a_probe_is_said_to_be_not_examined() -> None:
    (finding,) = storage("gs://bucket/lake")

    assert finding.verdict is Verdict.WARNING
    assert finding.found == "storage unknown"


def test_an_hdfs_that_cannot_be_reached_is_a_refusal_with_its_reason() -> None:
    with pytest.raises(StorageRefused, match="hdfs://namenode/lake: .*create or remove an object: .*No NameNode hosts"):
        list(storage("hdfs://namenode/lake"))


def test_a_bucket_that_honours_the_condition_is_fine_and_left_empty(store: ObjectStore) -> None:
    found = list(storage(S3_LAKE))

    assert verdicts(found) == {"storage": Verdict.OK, "clock": Verdict.OK}
    assert all(path.startswith("/bucket/lake/kdi-doctor-") for path in store.puts)
    assert len(store.puts) == 2
    assert store.objects == {}


def test_a_bucket_that_ignores_the_condition_is_wrong_and_left_empty(store: ObjectStore, findings: Findings) -> None:
    store.conditions = "ignored"
    found = findings()
    store.conditions = "unknown"

    assert verdicts(found)["storage"] is Verdict.WRONG
    assert "2 succeeded" in str(found[0].trouble)
    with pytest.raises(PutIfAbsentMissing, match=r"0 succeeded .*NotImplemented"):
        findings()
    assert store.objects == {}


@pytest.mark.parametrize(
    ("status", "code", "refusal"),
    [
        (403, "AccessDenied", StorageRefused),
        (503, "SlowDown", StorageUnanswered),
        (429, "TooManyRequests", StorageUnanswered),
        (400, "RequestTimeout", StorageUnanswered),
        (409, "OperationAborted", StorageUnanswered),
    ],
)
def test_a_bucket_that_takes_no_probe_is_told_from_one_that_cannot_now(
    store: ObjectStore, findings: Findings, status: int, code: str, refusal: type[Exception]
) -> None:
    store.refused = {"PUT": (status, code)}

    with pytest.raises(refusal, match=code):
        findings()


def test_an_endpoint_without_a_listener_is_worth_a_retry(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

    with pytest.raises(StorageUnanswered, match="127.0.0.1:1"):
        list(storage(S3_LAKE))


def test_a_probe_that_cannot_be_removed_is_named(store: ObjectStore, findings: Findings) -> None:
    store.refused = {"DELETE": (403, "AccessDenied")}

    left = findings()[-1]

    assert left.found == "probe left"
    assert left.verdict is Verdict.WARNING
    assert f"/bucket/lake/{left.facts['probe']}" in store.objects
