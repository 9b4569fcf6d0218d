"""Single objects in the S3 bucket of a lake, through boto3, and the proof that the storage honours conditional put."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

from kdi_assets.aws import is_transient
from kdi_assets.delta.errors import PutIfAbsentMissing, StorageRefused, StorageUnanswered
from kdi_assets.runtime.s3_access import credential_failures, lies_on_s3, refuse_other_lock, s3_client
from kdi_assets.runtime.threads import start_in_thread

RETRIES = 1
"""More retries would take longer than an examination of `kdi doctor` may."""

PROOF = "_kdi/conditional_put"
"""The object of a lake that cannot be created twice: the storage honours conditional put."""

RACES = 3
"""Of two writers at once, in a first proof."""

LOST = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
"""Error codes of a put if the object exists, or if another client creates it.

Source: Amazon S3, "How to prevent object overwrites with conditional writes".
"""

NO_CONDITIONS = frozenset({"NotImplemented", "501"})

_RIGHTS = "grant s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below {lake}"
_CREDENTIALS = "renew the credentials (aws sts get-caller-identity shows whose they are)"
_BUCKET = "create the bucket, or correct KDI_LAKE or the lake of the documents"
_REGION = "set AWS_REGION, or region in the profile that KDI_S3_BUCKETS names, to the bucket's region"
_CLOCK = "let timedatectl show whether NTP is on, on this machine"
_WAYS_OUT: Mapping[str, str] = {
    **dict.fromkeys(("AccessDenied", "403", "AllAccessDisabled"), _RIGHTS),
    **dict.fromkeys(("NoSuchBucket", "404"), _BUCKET),
    **dict.fromkeys(("PermanentRedirect", "301", "AuthorizationHeaderMalformed"), _REGION),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"), _CREDENTIALS),
}
"""What to do about an error, by S3's code of it. Source: Amazon S3 API Reference, "Error responses"."""


def object_storage(lake: str) -> ObjectStorage | None:
    """The bucket of an ``s3://`` or ``s3a://`` lake; ``None`` for others.

    Raises:
        OtherLock: The environment asks for a lock beside conditional put.
    """
    if not lies_on_s3(lake):
        return None
    refuse_other_lock(lake)
    return ObjectStorage.at(lake, s3_client(lake, retries=RETRIES))


def prove_conditional_put(lake: str) -> None:
    """Refuse a lake on S3 whose storage ignores ``If-None-Match``; called before a stream's first commit.

    The proof is an object that cannot be created a second time, neither later nor at the same time. It stays in the
    lake: the next call is one put, which the storage must refuse.

    Raises:
        PutIfAbsentMissing: It creates an object twice, or does not know the condition.
        StorageRefused, StorageUnanswered: It does not take the object.
    """
    storage = object_storage(lake)
    if storage is None or not storage.create(PROOF, b"one"):
        return
    proved = False
    try:
        proved = not storage.create(PROOF, b"other") and all(_one_wins(storage) for _ in range(RACES))
    finally:
        if not proved:
            storage.remove(PROOF)
    if not proved:
        raise PutIfAbsentMissing(lake=lake, created=2)


def _one_wins(storage: ObjectStorage) -> bool:
    name = f"{PROOF}-{uuid.uuid4().hex}"
    try:
        return len(race(storage.create, name)) < 2
    finally:
        storage.remove(name)


def race(create: Callable[[str, bytes], bool], name: str) -> list[bytes]:
    """Create one object twice at the same time; the contents of the writers that succeeded."""
    both = Barrier(2)

    def at_once(content: bytes) -> bool:
        both.wait()
        return create(name, content)

    created = {c: start_in_thread(partial(at_once, c), name=f"create {name}") for c in (b"one", b"other")}
    wait(created.values())  # also if one fails: what the other one writes is then gone
    return [content for content, done in created.items() if done.result()]


@dataclass(frozen=True)
class ObjectStorage:
    """The lake's bucket and prefix; each call may raise ``StorageRefused`` or ``StorageUnanswered``.

    Attributes:
        client: boto3's S3 client.
    """

    lake: str
    client: Any
    bucket: str
    prefix: str

    @classmethod
    def at(cls, uri: str, client: Any) -> ObjectStorage:
        """The objects below a URI."""
        parts = urlsplit(uri)
        return cls(uri, client, bucket=parts.netloc, prefix=parts.path.strip("/"))

    def create(self, name: str, content: bytes) -> bool:
        """Put with ``If-None-Match: *``; raises ``PutIfAbsentMissing`` if the storage lacks this condition."""
        from botocore.exceptions import ClientError

        with self._refusals("write"):
            try:
                self.client.put_object(**self._object(name), Body=content, IfNoneMatch="*")
            except ClientError as refused:
                code = refused.response["Error"]["Code"]
                if code in NO_CONDITIONS:
                    raise PutIfAbsentMissing(lake=self.lake, created=0, detail=f" ({refused})") from refused
                if code not in LOST:
                    raise
                return False
        return True

    def read(self, name: str) -> bytes:
        """The content of an object."""
        with self._refusals("read"):
            return bytes(self.client.get_object(**self._object(name))["Body"].read())

    def size_and_time(self, name: str) -> tuple[int, float] | None:
        """Its size, and when it was written, by the storage's clock in seconds since 1970; ``None`` if it is absent."""
        from botocore.exceptions import ClientError

        with self._refusals("read"):
            try:
                head = self.client.head_object(**self._object(name))
            except ClientError as refused:
                if refused.response["Error"]["Code"] in ("404", "NoSuchKey"):
                    return None
                raise
        return int(head["ContentLength"]), float(head["LastModified"].timestamp())

    def written_at(self, name: str) -> float:
        """When it was written, by the storage's clock: seconds since 1970."""
        with self._refusals("read"):
            return float(self.client.head_object(**self._object(name))["LastModified"].timestamp())

    def remove(self, name: str) -> None:
        """Remove it, if it exists."""
        with self._refusals("remove"):
            self.client.delete_object(**self._object(name))

    def regions(self) -> tuple[str, str]:
        """The region of the bucket, as the storage names it, and ours; the first is empty if it names none.

        boto3 follows a bucket into its region; delta-rs and Spark do not.
        """
        from botocore.exceptions import ClientError

        with self._refusals("show"):
            try:
                answer = self.client.head_bucket(Bucket=self.bucket)
            except ClientError as refused:
                answer = refused.response
        headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
        return str(headers.get("x-amz-bucket-region", "")), str(self.client.meta.region_name)

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": f"{self.prefix}/{name}".lstrip("/")}

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        """Raise ``StorageRefused``, or ``StorageUnanswered`` if the storage is not reachable or too busy."""
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        with credential_failures():
            try:
                yield
            except (ClientError, ConnectionError, HTTPClientError) as failed:
                if is_transient(failed):
                    raise StorageUnanswered(lake=self.lake, detail=str(failed)) from failed
                way_out = _WAYS_OUT.get(failed.response["Error"]["Code"], "").format(lake=self.lake)
                raise StorageRefused(lake=self.lake, action=action, detail=str(failed), way_out=way_out) from failed
