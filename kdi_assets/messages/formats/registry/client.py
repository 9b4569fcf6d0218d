"""Requests to a registry, and its answers as values.

Source: Confluent Schema Registry API reference, "Schemas", "Subjects", "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.messages.formats.errors import SubjectVersionUnknown
from kdi_assets.messages.formats.registry.connection import ANSWER_SECONDS, Answer, Connection
from kdi_assets.messages.formats.registry.schema import Registered, Version

SUBJECT_UNKNOWN, SCHEMA_UNKNOWN = 40401, 40403
UNTYPED = "AVRO"  # the only type whose name is left out
Value = TypeVar("Value")


class RegistryClient:
    """Requests without a cache. Every call may raise the errors of ``Connection.ask``."""

    def __init__(self, registry: Registry, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._registry = registry
        self._connection = Connection(registry, answer_seconds=answer_seconds)

    def types(self) -> tuple[str, ...]:
        """The types of schemas that the registry supports."""
        path = "/schemas/types"
        answer = self._connection.ask(path)
        return tuple(sorted(self._read(list[str], answer.content, path, answer)))

    def schema(self, schema_id: int) -> Registered | None:
        """The schema of an id; ``None`` if the registry has none."""
        path = f"/schemas/ids/{schema_id}"
        answer = self._connection.ask(path)
        return None if answer.code == SCHEMA_UNKNOWN else self._registered(path, answer, id=schema_id)

    def version_numbers(self, subject: str) -> tuple[int, ...]:
        """All versions of a subject, also deleted ones, which messages may still have; none if it is unknown."""
        path = f"/subjects/{quote(subject, safe='')}/versions?deleted=true"
        answer = self._connection.ask(path)
        if answer.code == SUBJECT_UNKNOWN:
            return ()
        return tuple(sorted(self._read(list[int], answer.content, path, answer)))

    def version(self, subject: str, number: int | None) -> tuple[Version, Registered]:
        """A version of a subject with its schema, also a deleted one; without a number the latest that is not deleted.

        Raises:
            SubjectVersionUnknown: There is no such subject or version.
        """
        wanted = "latest" if number is None else f"{number}?deleted=true"
        path = f"/subjects/{quote(subject, safe='')}/versions/{wanted}"
        answer = self._connection.ask(path)
        if answer.code:
            raise SubjectVersionUnknown(
                registry=self._registry.name,
                subject=subject,
                version="latest" if number is None else str(number),
                knows_subject=answer.code != SUBJECT_UNKNOWN,
                detail=f"{answer.code}: {answer.message}",
            )
        schema = self._registered(path, answer)
        found = {"subject": subject, "number": answer.content.get("version"), "id": schema.id}
        return self._read(Version, found, path, answer), schema

    def _registered(self, path: str, answer: Answer, **asked: int) -> Registered:
        """The schema in an answer, which lacks the id if it was requested by id."""
        found = answer.content if isinstance(answer.content, Mapping) else {}
        typed = {"references": found.get("references") or (), "type": found.get("schemaType", UNTYPED)}
        content = {"id": found.get("id"), "text": found.get("schema"), **typed, **asked}
        return self._read(Registered, content, path, answer)

    def _read(self, type_: type[Value], content: Any, path: str, answer: Answer) -> Value:
        try:
            read: Value = _reader(cast(Any, type_)).validate_python(content)
            return read
        except ValidationError as wrong:
            raise self._connection.not_understood(path, f"the answer is {str(answer.content)[:200]}") from wrong


@cache
def _reader(type_: Any) -> TypeAdapter[Any]:
    """Cached: it takes milliseconds to make."""
    return TypeAdapter(type_)
