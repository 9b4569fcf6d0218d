"""The questions to a registry, and its answers as values of ours.

Source: Confluent Schema Registry API reference, "Schemas", "Subjects", "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard
from urllib.parse import quote

from kdi_assets.connections import SchemaRegistry
from kdi_assets.formats.registry.connection import ANSWER_SECONDS, Answer, Connection
from kdi_assets.formats.registry.refusals import SubjectVersionUnknown
from kdi_assets.formats.registry.schema import Reference, Registered, RegisteredVersion, Version

SUBJECT_UNKNOWN, SCHEMA_UNKNOWN = 40401, 40403
UNTYPED = "AVRO"  # the only type whose name is left out


class RegistryClient:
    """Asks, and remembers nothing. Every call may raise what ``Connection.ask`` raises."""

    def __init__(self, registry: SchemaRegistry, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._registry = registry
        self._connection = Connection(registry, answer_seconds=answer_seconds)

    def types(self) -> tuple[str, ...]:
        """The types of schemas that the registry takes."""
        path = "/schemas/types"
        answer = self._connection.ask(path)
        if not (isinstance(answer.content, list) and all(isinstance(name, str) for name in answer.content)):
            raise self._not_as_documented(path, answer)
        return tuple(sorted(answer.content))

    def schema(self, schema_id: int) -> Registered | None:
        """The schema of an id; ``None`` if the registry says that there is none."""
        path = f"/schemas/ids/{schema_id}"
        answer = self._connection.ask(path)
        if answer.code == SCHEMA_UNKNOWN:
            return None
        return self._registered(path, answer, schema_id=schema_id)

    def version_numbers(self, subject: str) -> tuple[int, ...]:
        """All versions of a subject, deleted ones too: messages outlive them; none if it is unknown."""
        path = f"/subjects/{quote(subject, safe='')}/versions?deleted=true"
        answer = self._connection.ask(path)
        if answer.code == SUBJECT_UNKNOWN:
            return ()
        if not (isinstance(answer.content, list) and all(_is_number(number) for number in answer.content)):
            raise self._not_as_documented(path, answer)
        return tuple(sorted(answer.content))

    def version(self, subject: str, number: int | None) -> RegisteredVersion:
        """A version of a subject, deleted or not; with no number the latest that is not deleted.

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
        found = answer.content.get("version")
        if not _is_number(found):
            raise self._not_as_documented(path, answer)
        return RegisteredVersion(Version(subject, found, schema.id), schema)

    def _registered(self, path: str, answer: Answer, *, schema_id: int | None = None) -> Registered:
        """The schema in an answer; of one asked for by its id, the id is not repeated in it."""
        content = answer.content if not answer.code and isinstance(answer.content, dict) else {}
        number = content.get("id") if schema_id is None else schema_id
        type_, text, named = content.get("schemaType", UNTYPED), content.get("schema"), content.get("references") or []
        references = [_reference(item) for item in named] if isinstance(named, list) else [None]
        kept = tuple(reference for reference in references if reference is not None)
        if not (_is_number(number) and isinstance(type_, str) and isinstance(text, str)) or len(kept) < len(references):
            raise self._not_as_documented(path, answer)
        return Registered(number, type_, text, kept)

    def _not_as_documented(self, path: str, answer: Answer) -> Exception:
        return self._connection.not_understood(path, f"it said {str(answer.content)[:200]}")


def _reference(item: object) -> Reference | None:
    if not isinstance(item, Mapping):
        return None
    name, subject, version = item.get("name"), item.get("subject"), item.get("version")
    if isinstance(name, str) and isinstance(subject, str) and _is_number(version):
        return Reference(name, subject, version)
    return None


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
