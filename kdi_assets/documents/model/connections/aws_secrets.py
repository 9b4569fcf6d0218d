"""Values that AWS Secrets Manager keeps; documents name the secret."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from kdi_assets.aws import is_transient
from kdi_assets.documents.model.field_types import Declared
from kdi_assets.errors import Terminal, Transient

KEPT_SECONDS = 300.0
"""How long a secret is kept in memory: each client that is made would ask for it."""

_LIMITS = {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 1, "mode": "standard"}}
_kept: dict[str, tuple[float, str]] = {}


class SecretUnreadable(Terminal):
    """Secrets Manager does not give a value that a document names."""

    secret: str
    detail: str

    what_happened = "the secret {secret} of AWS Secrets Manager cannot be read: {detail}"
    what_is_safe = "nothing was committed by this attempt."
    what_to_run = "kdi doctor   (first correct its name, set AWS_REGION, or grant secretsmanager:GetSecretValue on it)"


class SecretUnanswered(Transient):
    """Secrets Manager, or the service that gives our role, does not answer or is too busy."""

    secret: str
    detail: str

    what_happened = "AWS does not give the secret {secret} now: {detail}"
    what_is_safe = "nothing was committed by this attempt."
    what_to_run = "the same command again   (if it repeats, kdi doctor)"


@dataclass(frozen=True, slots=True)
class FromSecretsManager(Declared):
    """A value from AWS Secrets Manager."""

    aws_secret: Annotated[str, Field(examples=["prod/kafka"])]
    """Name or ARN of the secret."""
    key: Annotated[str, Field(examples=["password"])] = ""
    """Key of the value, if the secret is JSON with several; by default the value is the whole text."""

    def read(self) -> str:
        """The value now; it may be five minutes old, or older while Secrets Manager does not answer.

        Raises:
            SecretUnreadable: It is not there, or we may not read it.
            SecretUnanswered: Secrets Manager does not answer, and the value was not read before.
        """
        text = _text(self.aws_secret)
        if not self.key:
            return text
        try:
            value = json.loads(text)[self.key]
        except (ValueError, KeyError, TypeError):  # their messages would show the secret
            value = None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        detail = f"it has no key {self.key!r} as JSON, with a text or a number"
        raise SecretUnreadable(secret=self.aws_secret, detail=detail) from None


def _text(secret: str) -> str:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    until, text = _kept.get(secret, (0.0, ""))
    if time.monotonic() < until:
        return text
    try:
        region = os.environ.get("AWS_REGION")  # boto3 does not read it
        client = boto3.client("secretsmanager", region_name=region, config=Config(**_LIMITS))
        text = str(client.get_secret_value(SecretId=secret)["SecretString"])
    except (BotoCoreError, ClientError) as refused:
        if is_transient(refused) and text:
            return text
        error = SecretUnanswered if is_transient(refused) else SecretUnreadable
        raise error(secret=secret, detail=str(refused)) from refused
    except KeyError:
        raise SecretUnreadable(secret=secret, detail="it is binary") from None
    _kept[secret] = time.monotonic() + KEPT_SECONDS, text
    return text
