"""Access to S3 by AWS's usual settings: delta-rs, Spark and boto3 use the same credentials, region and endpoint.

The environment is enough if it has keys and region. Otherwise botocore finds what is missing, because delta-rs knows no
profiles: a profile, an assumed role, a web identity, the role of a container or of the instance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any

from kdi_assets.aws import is_transient
from kdi_assets.runtime.errors import CredentialsMissing, CredentialsRefused, OtherLock

if TYPE_CHECKING:
    from botocore.session import Session

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECTIONS = 16
"""Of one client; as many tables are looked at side by side."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}

_in_turn = RLock()
"""Threads use one session of botocore, which loads its parts without a lock."""


def lies_on_s3(uri: str) -> bool:
    """Whether a path or URI is one of S3."""
    return uri.startswith(("s3://", "s3a://"))


def s3_region() -> str | None:
    """The region of the buckets; ``None`` if nothing names one."""
    return _first_set(*REGIONS) or _of_profile("region")


def s3_endpoint() -> str | None:
    """The URL of an S3 that is not AWS's own; ``None`` for AWS's."""
    return _first_set(*ENDPOINTS) or _of_profile("endpoint_url")


def s3_location(lake: str) -> dict[str, str | None]:
    """Endpoint and region of a lake on S3; empty for a lake elsewhere.

    Raises:
        CredentialsMissing, CredentialsRefused: The profile of AWS cannot be read.
    """
    return {"endpoint": s3_endpoint(), "region": s3_region()} if lies_on_s3(lake) else {}


def delta_rs_options(uri: str) -> dict[str, str] | None:
    """Options of delta-rs for a table on S3; ``None`` for a table elsewhere.

    Credentials that expire are valid for ten minutes at least, so the options are made for each table that is opened.

    Raises:
        OtherLock: The environment asks for a lock that does not exclude our commits.
        CredentialsMissing, CredentialsRefused: There are no credentials, or they cannot be used.
    """
    if not lies_on_s3(uri):
        return None
    refuse_other_lock(uri)
    endpoint, region = s3_endpoint(), s3_region()
    return {
        "aws_conditional_put": "etag",
        **({"aws_endpoint_url": endpoint} if endpoint else {}),
        **({"aws_allow_http": "true"} if endpoint and endpoint.startswith("http://") else {}),
        **({"aws_region": region} if region else {}),
        **_credentials(),
    }


def s3_client(*, retries: int) -> Any:
    """The client of botocore; made once, and again if settings or files of AWS change.

    Raises:
        CredentialsMissing, CredentialsRefused: There are no credentials, or they cannot be used.
    """
    with credential_failures(), _in_turn:
        return _s3_client(_session(), s3_region(), s3_endpoint(), retries)


@lru_cache(maxsize=2)
def _s3_client(session: Session, region: str | None, endpoint: str | None, retries: int) -> Any:
    from botocore.config import Config

    config = Config(
        retries={"max_attempts": retries, "mode": "standard"},
        ignore_configured_endpoint_urls=True,
        max_pool_connections=CONNECTIONS,
    )
    return session.create_client("s3", region_name=region, endpoint_url=endpoint, config=config)


def refuse_other_lock(uri: str) -> None:
    """Refuse the setting with which the predecessor and older releases of delta-rs lock through DynamoDB.

    Raises:
        OtherLock: It is set.
    """
    if provider := os.environ.get("AWS_S3_LOCKING_PROVIDER"):
        raise OtherLock(uri=uri, setting="AWS_S3_LOCKING_PROVIDER", value=provider)


@contextmanager
def credential_failures() -> Iterator[None]:
    """Translate failures of botocore to find credentials, which may run a program and ask a service for them.

    Raises:
        CredentialsMissing, CredentialsRefused: There are none, or they cannot be used.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError, RuntimeError, ValueError) as failed:
        error = CredentialsMissing if is_transient(failed) else CredentialsRefused
        raise error(detail=" ".join(str(failed).split())[:500]) from failed


def has_keys() -> bool:
    """Whether the environment has the keys, which count before a profile."""
    return all(map(os.environ.get, KEYS))


def _credentials() -> dict[str, str]:
    if has_keys():
        return {}  # delta-rs reads them itself, with the session token
    with credential_failures(), _in_turn:
        found = _session().get_credentials()
        if found is None:
            raise CredentialsMissing(detail="no keys in the environment, no profile, no role")
        frozen = found.get_frozen_credentials()
    token = {"aws_session_token": frozen.token} if frozen.token else {}
    return {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key, **token}


def _of_profile(setting: str) -> str | None:
    if has_keys() and _first_set(*REGIONS):
        return None  # an import of botocore takes a third of a second
    with credential_failures(), _in_turn:
        found: str | None = _session().get_scoped_config().get(setting)
    return found


def _first_set(*names: str) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _session() -> Session:
    """botocore's session; a new one after a login that writes other keys into a file, which a session reads once."""
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    files = (os.path.expanduser(os.environ.get(name) or usual) for name, usual in FILES.items())
    return _session_of(tuple(settings), tuple(os.stat(f).st_mtime_ns if os.path.exists(f) else 0 for f in files))


@lru_cache(maxsize=1)
def _session_of(settings: object, written: object) -> Session:
    from botocore.session import get_session

    return get_session()
