"""Which failures of AWS's services may pass by themselves."""

from __future__ import annotations

TRANSIENT_CODES = frozenset(
    {
        "RequestTimeout",
        "OperationAborted",
        "SlowDown",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "InternalServerException",
        "InternalServerError",
    }
)
"""Error codes after which the same request may succeed, whatever status they come with.

Source: Amazon S3 API Reference, "Error responses"; Amazon EMR API Reference, "Errors" of each action.
"""


def is_transient(failed: Exception) -> bool:
    """Whether the request of boto3 may succeed later: no answer, a server error, throttling, a slow role service."""
    from botocore.exceptions import (
        ClientError,
        ConnectionError,
        CredentialRetrievalError,
        HTTPClientError,
        NoCredentialsError,
    )

    if isinstance(failed, ClientError):
        code, status = failed.response["Error"]["Code"], failed.response.get("ResponseMetadata", {})
        passes = code in TRANSIENT_CODES or "Throttl" in code
        return passes or status.get("HTTPStatusCode", 0) in {429, *range(500, 600)}
    return isinstance(failed, ConnectionError | HTTPClientError | CredentialRetrievalError | NoCredentialsError)
