"""Values of client properties: text, or a reference to an environment variable or to a secret, read when it is used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from kdi_assets.documents.model.connections.aws_secrets import FromSecretsManager
from kdi_assets.documents.model.field_types import Declared, wrong
from kdi_assets.errors import Terminal


class EnvironmentVariableMissing(Terminal):
    """A client property comes from an environment variable that is not set."""

    of: str
    property: str
    variable: str

    what_happened = "{of}: {property} comes from the environment variable {variable}, which is not set."
    what_is_safe = "no request was sent; no topic and no table was touched."
    what_to_run = "the same command again   (with {variable} set)"


REFERENCE = "{env: NAME}, or {aws_secret: NAME, key: KEY}"
BELONGS_ELSEWHERE = "is a secret, which belongs in no document"


@dataclass(frozen=True, slots=True)
class FromEnvironment(Declared):
    """A value from an environment variable: for secrets, which belong in no file."""

    env: Annotated[str, Field(examples=["KAFKA_PASSWORD"])]
    """Name of the environment variable."""


def client_value(value: object) -> object:
    """Text, ``{env: NAME}`` or ``{aws_secret: NAME}``; pydantic would report a mistake for each of the forms."""
    if value is None or isinstance(value, bool | int | float | list):
        raise wrong("takes text", "put it in quotes, or write {env: NAME} for a secret")  # and it may be one
    if not isinstance(value, dict):
        return value
    written = all(text and isinstance(text, str) for text in value.values())
    if not written or value.keys() not in ({"env"}, {"aws_secret"}, {"aws_secret", "key"}):
        right = "e.g. {env: KAFKA_PASSWORD}, or {aws_secret: prod/kafka, key: password}"
        raise wrong(f"{value!r} does not name an environment variable", right)
    return value


def _secret(value: object) -> object:
    if isinstance(value, str | int | float):
        raise wrong(BELONGS_ELSEWHERE, REFERENCE)
    return client_value(value)


def is_pem(value: str) -> bool:
    """Whether the value is the text of a certificate or key, and not the path of its file."""
    return "-----BEGIN " in value


ClientValue = Annotated[str | FromEnvironment | FromSecretsManager, BeforeValidator(client_value)]
SecretValue = Annotated[str | FromEnvironment | FromSecretsManager, BeforeValidator(_secret)]
"""A reference; empty if the field is not given."""


@dataclass(frozen=True)
class EnvironmentProperties(Mapping[str, str]):
    """Client properties; those from the environment and from Secrets Manager are read when they are used.

    So ``kdi check`` needs no secrets, and no log that shows the cluster or the registry can show a secret.

    Attributes:
        of: The owner, for the error: ``cluster main``, ``registry main``.
    """

    of: str
    written: Mapping[str, str | FromEnvironment | FromSecretsManager]

    def __getitem__(self, name: str) -> str:
        """The value of a property.

        Raises:
            EnvironmentVariableMissing: It comes from a variable that is not set.
            SecretUnreadable, SecretUnanswered: Secrets Manager does not give it.
        """
        value = self.written[name]
        if isinstance(value, str):
            return value
        if isinstance(value, FromSecretsManager):
            return value.read()
        if value.env not in os.environ:
            raise EnvironmentVariableMissing(of=self.of, property=name, variable=value.env)
        return os.environ[value.env]

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)
