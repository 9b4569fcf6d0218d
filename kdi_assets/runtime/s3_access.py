"""Access to S3 by AWS's usual settings: delta-rs, Spark and boto3 use the same credentials, region and endpoint.

The environment is enough if it has keys and region. Otherwise botocore finds what is missing, because delta-rs knows no
profiles: a profile, an assumed role, a web identity, the role of a container or of the instance.

A bucket with other settings has a profile of its own, by ``KDI_S3_BUCKETS``; then the environment does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kdi_assets.aws import is_transient
from kdi_assets.runtime.errors import CredentialsMissing, CredentialsRefused, OtherLock
from kdi_assets.settings import ON_S3, Settings, s3_buckets

if TYPE_CHECKING:
    from botocore.session import Session

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECTIONS = 16
"""Of one client; as many tables are looked at side by side."""
CLIENTS = 8
"""Kept: one for each profile and number of retries."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}

_in_turn = RLock()
"""Threads use one session of botocore, which loads its parts without a lock."""


def lies_on_s3(uri: str) -> bool:
    """Whether a path or URI is one of S3."""
    return urlsplit(uri).scheme in ON_S3


def profile_of(uri: str) -> str:
    """The profile that the bucket of a path or URI has of its own; empty if it has AWS's usual settings."""
    return s3_buckets().get(urlsplit(uri).netloc, "") if lies_on_s3(uri) else ""


def s3_region(uri: str = "") -> str | None:
    """The region of the bucket of a URI, by default of most buckets; ``None`` if nothing names one."""
    if profile := profile_of(uri):
        return _setting_of(profile, "region") or _first_set(*REGIONS)
    return _first_set(*REGIONS) or _of_usual_profile("region")


def s3_endpoint(uri: str = "") -> str | None:
    """The URL of the S3 of a URI's bucket, by default of most buckets; ``None`` for AWS's own where clients find it."""
    if not (profile := profile_of(uri)):
        return _first_set(*ENDPOINTS) or _of_usual_profile("endpoint_url")
    if (own := _setting_of(profile, "endpoint_url")) or not s3_endpoint():
        return own
    with credential_failures(), _in_turn:  # AWS's own; without it, the clients would take that of most buckets
        url: str = _s3_client(_session(profile), s3_region(uri), None, 1).meta.endpoint_url
    return url


def s3_location(settings: Settings) -> dict[str, str | None]:
    """Endpoint, region and further buckets of Spark's client of S3; empty if none is needed.

    Raises:
        CredentialsMissing, CredentialsRefused: The profile of AWS cannot be read.
    """
    if not settings.uses_s3:
        return {}
    buckets = ",".join(f"{bucket}={profile}" for bucket, profile in sorted(settings.s3_buckets.items()))
    return {"endpoint": s3_endpoint(), "region": s3_region(), "list of buckets": buckets or None}


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
    endpoint, region = s3_endpoint(uri), s3_region(uri)
    return {
        "aws_conditional_put": "etag",
        # With the ending, because of two it is the one that counts, and delta-rs adds those of the environment.
        **({"aws_endpoint_url_s3": endpoint} if endpoint else {}),
        **({"aws_allow_http": "true"} if endpoint and endpoint.startswith("http://") else {}),
        **({"aws_region": region} if region else {}),
        **_credentials(profile_of(uri)),
    }


def s3_client(uri: str, *, retries: int) -> Any:
    """The client of botocore for a bucket; made once, and again if settings or files of AWS change.

    Raises:
        CredentialsMissing, CredentialsRefused: There are no credentials, or they cannot be used.
    """
    with credential_failures(), _in_turn:
        return _s3_client(_session(profile_of(uri)), s3_region(uri), s3_endpoint(uri), retries)


@lru_cache(maxsize=CLIENTS)
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


def _credentials(profile: str) -> dict[str, str]:
    """Those of a profile; without one, the usual ones."""
    if has_keys() and not profile:
        return {}  # delta-rs reads them itself, with the session token
    with credential_failures(), _in_turn:
        found = _session(profile).get_credentials()
        if found is None:
            where = f"none in the profile {profile}" if profile else "no keys in the environment, no profile, no role"
            raise CredentialsMissing(detail=where)
        frozen = found.get_frozen_credentials()
    if not frozen.token and os.environ.get("AWS_SESSION_TOKEN"):
        said = f"delta-rs would send AWS_SESSION_TOKEN of the environment with the keys of {profile or 'the profile'}"
        raise CredentialsRefused(detail=f"{said}: keep the environment's keys in a profile too")
    token = {"aws_session_token": frozen.token} if frozen.token else {}
    return {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key, **token}


def _of_usual_profile(setting: str) -> str | None:
    if has_keys() and _first_set(*REGIONS):
        return None  # an import of botocore takes a third of a second
    return _setting_of("", setting)


def _setting_of(profile: str, setting: str) -> str | None:
    with credential_failures(), _in_turn:
        found: str | None = _session(profile).get_scoped_config().get(setting)
    return found


def _first_set(*names: str) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _session(profile: str) -> Session:
    """botocore's session; a new one after a login that writes other keys into a file, which a session reads once."""
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    written = tuple(os.stat(f).st_mtime_ns if os.path.exists(f) else 0 for f in map(_file, FILES))
    if profile:
        _refuse_unlisted(profile, credentials_file())
    return _session_of(profile, tuple(settings), written)


def credentials_file() -> str:
    """The path of AWS's file with keys; it need not exist."""
    return _file("AWS_SHARED_CREDENTIALS_FILE")


def _file(variable: str) -> str:
    return os.path.abspath(os.path.expanduser(os.environ.get(variable) or FILES[variable]))


def _refuse_unlisted(profile: str, file: str) -> None:
    """Spark's client reads a bucket's profile from this file alone."""
    from botocore.configloader import raw_config_parse

    if not os.path.exists(file) or profile not in raw_config_parse(file):
        raise ValueError(f"{file} has no section [{profile}], which KDI_S3_BUCKETS names")


@lru_cache(maxsize=CLIENTS)
def _session_of(profile: str, settings: object, written: object) -> Session:
    from botocore.session import Session

    return Session(profile=profile or None)
