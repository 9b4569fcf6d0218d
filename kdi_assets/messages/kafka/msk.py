"""Tokens for Amazon MSK by IAM: a signed address that the brokers hand to AWS, which tells them who we are.

librdkafka gets the tokens from here. The Java client gets the keys, and signs with them itself
(``kdi.kafka.MskLogin``): a token lives 15 minutes, and a read may take longer.

Source: the form of Amazon's own signers; a test compares each token with that of its Python package.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from time import time
from typing import Any

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka.errors import AwsCredentialsMissing

TOKEN_SECONDS = 900
"""The most that MSK takes."""

_of_role: list[Any] = []


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Keys of AWS, and the region of the cluster."""

    region: str
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @property
    def options(self) -> dict[str, str]:
        """As options of the Java client's login."""
        keys = {"region": self.region, "accessKeyId": self.access_key, "secretAccessKey": self.secret_key}
        return keys | ({"sessionToken": self.session_token} if self.session_token else {})

    def token(self) -> str:
        """A token that is valid from now on."""
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        address = f"https://kafka.{self.region}.amazonaws.com/"
        request = AWSRequest(method="GET", url=address, params={"Action": "kafka-cluster:Connect"})
        keys = Credentials(self.access_key, self.secret_key, self.session_token or None)
        SigV4QueryAuth(keys, "kafka-cluster", self.region, expires=TOKEN_SECONDS).add_auth(request)
        request.params = {"User-Agent": "kdi-assets"}
        return urlsafe_b64encode(request.prepare().url.encode()).decode().rstrip("=")


def signing_keys(cluster: Cluster) -> SigningKeys:
    """The keys that AWS's clients find now: of a role, of a profile, or of variables.

    Raises:
        AwsCredentialsMissing: There are none, or the service that gives them does not answer.
    """
    from botocore.exceptions import BotoCoreError

    try:
        found = _credentials()
        keys = found and found.get_frozen_credentials()
    except BotoCoreError as refused:
        raise AwsCredentialsMissing(cluster=cluster.name, detail=str(refused)) from refused
    if not keys or not keys.access_key:
        raise AwsCredentialsMissing(cluster=cluster.name, detail="no role, no profile and no variables")
    region = cluster.sasl.region if cluster.sasl else ""
    return SigningKeys(region, keys.access_key, keys.secret_key, keys.token or "")


def _credentials() -> Any:
    """Those of a role are kept: they renew themselves, and every look would ask AWS for others."""
    import boto3
    from botocore.credentials import RefreshableCredentials

    if _of_role:
        return _of_role[0]
    found = boto3.Session().get_credentials()
    if isinstance(found, RefreshableCredentials):
        _of_role.append(found)
    return found


def fresh_token(cluster: Cluster) -> tuple[str, float]:
    """A token, and the Unix time in seconds when it ends, as librdkafka's client asks for it."""
    return signing_keys(cluster).token(), int(time()) + TOKEN_SECONDS
