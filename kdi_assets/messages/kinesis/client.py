"""The second client of Kinesis: boto3, on the driver. It shares no code with the reader on the executors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from hashlib import sha256
from sys import maxsize
from typing import Any

from kdi_assets.aws import is_transient
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis.errors import (
    EndlessAnswers,
    KinesisRequestRefused,
    KinesisUnanswered,
    NoSuchKinesisStream,
)

MOST_PAGES = 1_000
"""Answers that come no nearer to the shard's end. Of a day without records there may be some 250 that do."""
LATE_MS = 60_000
"""Arrival times are not in order; a record may become readable so long after another one that arrived later."""
PAUSE_SECONDS = 0.2
"""Between two calls about a shard: five a second are allowed, for all readers together."""
ATTEMPTS = 9
"""At a call; between them botocore waits up to 1, 2, 4, … and at most 20 seconds."""
LOOK_ATTEMPTS = 4
"""At a call that tells whether a stream answers at all: sensors look once a minute."""
ABOUT_A_SHARD = ("GetShardIterator", "GetRecords")
NEEDS_ACTIVE = ("ListShards", "GetShardIterator")
"""Calls that are refused as ``ResourceInUseException`` while a stream is made or deleted."""
EXPIRED_KEYS = ("ExpiredTokenException", "ExpiredToken")
OLD_KEYS = (*EXPIRED_KEYS, "UnrecognizedClientException", "InvalidClientTokenId")
"""Codes of Kinesis and of the service that gives roles; keys that are deleted are unknown rather than expired."""
TRANSIENT_CODES = (
    *EXPIRED_KEYS,
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "ExpiredIteratorException",
)


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record as this client sees it.

    Attributes:
        arrived: In milliseconds since 1970.
        digest: Of partition key and data, as the reader on the executors computes it.
    """

    sequence: str
    arrived: int
    digest: str


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """One answer about a shard.

    Attributes:
        following: The next iterator; ``None``: the shard is closed, and was read to its end.
        at: The server's time of the answer, and how far it is behind that; in milliseconds.
    """

    records: tuple[SeenRecord, ...]
    following: str | None
    at: int
    behind: int

    def reaches(self, moment: int) -> bool:
        """Whether all records that arrived until then are in this or an earlier answer; some are never 0 behind."""
        return self.behind == 0 or self.at - self.behind > moment


def kinesis_client(connection: KinesisRegion, *, attempts: int = ATTEMPTS) -> Any:
    """boto3's client of the connection."""
    from botocore.config import Config

    retries = {"total_max_attempts": attempts, "mode": "standard"}
    seconds = 5 if attempts < LOOK_ATTEMPTS else 20  # a tick asks again later, and a person waits for a command
    limits = Config(connect_timeout=5, read_timeout=seconds, retries=retries)
    endpoint = connection.endpoint or None
    options = {"region_name": connection.region, "endpoint_url": endpoint, "config": limits}
    with translated(connection, ""):
        return _session(connection).client("kinesis", **options)


def reader_access(connection: KinesisRegion) -> tuple[str, ...]:
    """The arguments of ``kdi.kinesis.Access``: one address and one set of keys for both clients."""
    from botocore.exceptions import NoCredentialsError

    endpoint = kinesis_client(connection).meta.endpoint_url
    with translated(connection, ""):  # a role's keys may end just now, and then they are asked for
        if (found := _session(connection).get_credentials()) is None:
            raise NoCredentialsError
        keys = found.get_frozen_credentials()
    return connection.region, endpoint, keys.access_key, keys.secret_key, keys.token or ""


@lru_cache
def _session(connection: KinesisRegion) -> Any:
    """boto3's session; one is kept, because each reads the model of the service anew, for 60 ms and more."""
    import boto3

    return _session_in_role(connection) if connection.role_arn else boto3.Session()


def _session_in_role(connection: KinesisRegion) -> Any:
    """A session with the role's keys; botocore asks for others before they end."""
    import boto3
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError
    from botocore.session import get_session

    own, in_role = get_session(), get_session()
    if (keys := own.get_credentials()) is None:
        raise NoCredentialsError
    endpoint = connection.sts_endpoint or None
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(own.create_client, region_name=connection.region, endpoint_url=endpoint),
        source_credentials=keys,
        role_arn=connection.role_arn,
        extra_args={
            "RoleSessionName": connection.role_session_name,
            **({"ExternalId": connection.role_external_id} if connection.role_external_id else {}),
        },
    )
    in_role._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, method="assume-role")
    return boto3.Session(botocore_session=in_role)


@contextmanager
def translated(connection: KinesisRegion, stream: str) -> Iterator[None]:
    """Raise what boto3 raises as errors of ours.

    Raises:
        NoSuchKinesisStream: There is no such stream.
        KinesisUnanswered: The same request may succeed later, or the shard is gone: the next list does not have it.
        KinesisRequestRefused: It will not.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as failed:
        code, operation = "", ""
        if isinstance(failed, ClientError):
            code, operation = failed.response["Error"]["Code"], failed.operation_name
        is_missing = code == "ResourceNotFoundException"
        if is_missing and operation not in ABOUT_A_SHARD:
            raise NoSuchKinesisStream(connection=connection.name, region=connection.region, stream=stream) from failed
        if code in OLD_KEYS:
            _session.cache_clear()  # the next client reads the keys again: variables and files may have newer ones
        passes = is_missing or code in TRANSIENT_CODES or is_transient(failed)
        passes |= code == "ResourceInUseException" and operation in NEEDS_ACTIVE
        # Retention passed the place just now.
        passes |= code == "InvalidArgumentException" and operation in ABOUT_A_SHARD
        error = KinesisUnanswered if passes else KinesisRequestRefused
        raise error(connection=connection.name, detail=str(failed)) from failed


def other_calls_may_pass(error: KdiError) -> bool:
    """Whether an error is about one call, one shard or one stream; else the connection is down.

    Those of ``translated`` have a cause; one without is of an answer that came.
    """
    from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

    cause = error.__cause__
    if isinstance(cause, ClientError):
        return cause.response["Error"]["Code"] not in OLD_KEYS
    return cause is None or isinstance(cause, ConnectionClosedError | ReadTimeoutError)


def came_in_time(error: KdiError) -> bool:
    """Whether an error is of an answer; else the call has waited for one in vain."""
    from botocore.exceptions import ClientError

    return error.__cause__ is None or isinstance(error.__cause__, ClientError)


def is_missing(error: KdiError) -> bool:
    """Whether an error of ``translated`` says that there is no such shard or stream."""
    from botocore.exceptions import ClientError

    cause = error.__cause__
    return isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "ResourceNotFoundException"


def pages(client: Any, stream: str, shard: str, *, most: int, **start: Any) -> Iterator[RecordsPage]:
    """The answers about a shard, one by one.

    Args:
        most: Records of an answer.
        start: ``ShardIteratorType`` and what it needs.

    Raises:
        EndlessAnswers: The caller still asks after ``MOST_PAGES`` that come no nearer.
    """
    iterator = client.get_shard_iterator(StreamName=stream, ShardId=shard, **start)["ShardIterator"]
    least, left = maxsize, MOST_PAGES
    while left:
        page = page_at(client, iterator, most=most)
        yield page
        if page.following is None:
            return
        iterator = page.following
        least, left = (page.behind, MOST_PAGES) if page.behind < least else (least, left - 1)
        time.sleep(PAUSE_SECONDS)
    raise EndlessAnswers(stream=stream, shard=shard, answers=MOST_PAGES)


def page_at(client: Any, iterator: str, *, most: int) -> RecordsPage:
    """The answer to an iterator."""
    answer = client.get_records(ShardIterator=iterator, Limit=most)
    at, behind = milliseconds(server_time(answer)), answer["MillisBehindLatest"]
    return RecordsPage(tuple(map(seen, answer["Records"])), answer.get("NextShardIterator"), at, behind)


def server_time(answer: Any) -> datetime:
    """The server's time of an answer, in whole seconds."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def seen(record: Any) -> SeenRecord:
    """A record of boto3."""
    key = record.get("PartitionKey")
    digest = digest_of(None if key is None else key.encode(), record["Data"])
    return SeenRecord(record["SequenceNumber"], milliseconds(record["ApproximateArrivalTimestamp"]), digest)


def digest_of(key: bytes | None, data: bytes) -> str:
    """The digest of a record; ``kdi.kinesis.ShardRecords`` computes the same."""
    digest = sha256()
    for part in (key, data):
        digest.update(b"%d:" % (-1 if part is None else len(part)) + (part or b""))
    return digest.hexdigest()[:16]
