"""Probes in an S3 bucket, through boto3 (from dagster-aws), with the AWS client's credentials and endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kdi_assets.doctor.finding import Unanswered
from kdi_assets.doctor.probe import probe_refused, put_if_absent_missing

RETRIES = 1
"""More retries would take longer than the examination may."""

LOST = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
"""Error codes of a put if the object exists, or if another client creates it.

Source: Amazon S3, "How to prevent object overwrites with conditional writes".
"""

NO_CONDITIONS = frozenset({"NotImplemented", "501"})


def object_storage(lake: str) -> ObjectStorage | None:
    """The bucket of an ``s3://`` or ``s3a://`` lake; ``None`` for others."""
    parts = urlsplit(lake)
    if parts.scheme not in ("s3", "s3a"):
        return None
    import boto3
    from botocore.config import Config

    # delta-rs reads AWS_REGION, boto3 does not; both read everything else from the same variables and files.
    region = os.environ.get("AWS_REGION") or None
    client = boto3.client(
        "s3", region_name=region, config=Config(retries={"max_attempts": RETRIES, "mode": "standard"})
    )
    return ObjectStorage(lake, client, bucket=parts.netloc, prefix=parts.path.strip("/"))


@dataclass(frozen=True)
class ObjectStorage:
    """The lake's bucket and prefix; methods as in ``LocalStorage``, which may also raise ``Unanswered``.

    Attributes:
        client: boto3's S3 client.
    """

    lake: str
    client: Any
    bucket: str
    prefix: str

    def create(self, name: str, content: bytes) -> bool:
        """Put with ``If-None-Match: *``; raises ``Trouble`` if the storage lacks this condition."""
        from botocore.exceptions import ClientError

        with self._refusals("write"):
            try:
                self.client.put_object(**self._object(name), Body=content, IfNoneMatch="*")
            except ClientError as refused:
                code = refused.response["Error"]["Code"]
                if code in NO_CONDITIONS:
                    raise put_if_absent_missing(self.lake, created=0, detail=f" ({refused})") from refused
                if code not in LOST:
                    raise
                return False
        return True

    def read(self, name: str) -> bytes:
        with self._refusals("read"):
            return bytes(self.client.get_object(**self._object(name))["Body"].read())

    def written_at(self, name: str) -> float:
        with self._refusals("read"):
            return float(self.client.head_object(**self._object(name))["LastModified"].timestamp())

    def remove(self, name: str) -> None:
        with self._refusals("remove"):
            self.client.delete_object(**self._object(name))

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": f"{self.prefix}/{name}".lstrip("/")}

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        """Raise ``Trouble`` for a refusal, ``Unanswered`` if the storage is not reachable or too busy."""
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        try:
            yield
        except ClientError as refused:
            if refused.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
                raise self._unanswered(refused) from refused
            raise probe_refused(self.lake, action, refused) from refused
        except (ConnectionError, HTTPClientError) as silent:
            raise self._unanswered(silent) from silent
        except BotoCoreError as refused:  # e.g. no credentials or no region
            raise probe_refused(self.lake, action, refused) from refused

    def _unanswered(self, silent: Exception) -> Unanswered:
        return Unanswered(
            kind="storage unanswered",
            happened=f"{self.lake}: the storage does not answer: {silent}",
            safe="no table was touched; positions stay as they are.",
            run="kdi doctor    (once more; if it repeats, look at the storage, its address and the network between)",
        )
