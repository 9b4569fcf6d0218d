"""The schemas of one registry for a drain: a schema that was fetched once stays known, also with the registry down.

A drain knows the schemas of the stream's subject, and fetches others that its messages name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.message_format import RegistrySchemas
from kdi_assets.messages.formats.errors import FormatMistake, RegistryUnavailable
from kdi_assets.messages.formats.framing import other_schema_than
from kdi_assets.messages.formats.registry.cache import SchemaFiles
from kdi_assets.messages.formats.registry.client import RegistryClient
from kdi_assets.messages.formats.registry.schema import Reference, Referenced, Registered, Schema, Version
from kdi_assets.settings import Settings

UNKNOWN_SECONDS = 30.0
"""How long until an unknown id is requested again: it may be registered at any time."""
HIGHEST_ID = 2**31 - 1
MOST_IDS = 1000
"""New ids in one plan. Each is a request, and messages without a frame may seem to name millions."""
log = logging.getLogger(__name__)


class Schemas:
    """Schemas by id, by subject and by version; the registry is asked only for what is not known.

    Every call may raise the errors of ``Connection.ask``. ``RegistryUnavailable`` means that a needed schema was
    never fetched: a retry helps, and no message can be judged until then.
    """

    def __init__(self, registry: Registry, *, home: Path, now_seconds: Callable[[], float] = monotonic) -> None:
        """Send no request yet.

        Args:
            home: Answers are kept in its folder ``registry`` (``Settings.home``).
            now_seconds: A monotonic clock.
        """
        self._client = RegistryClient(registry)
        self._files = SchemaFiles(home, registry)
        self._now_seconds = now_seconds
        self._known: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}  # until when, by id

    def by_ids(self, ids: Iterable[int]) -> dict[int, Schema | None]:
        """The schema of every id; ``None`` for ids that the registry does not know.

        Args:
            ids: Any numbers: they may come from messages without a frame.
        """
        now = self._now_seconds()
        self._unknown = {schema_id: until for schema_id, until in self._unknown.items() if until > now}
        return {schema_id: self.by_id(schema_id) for schema_id in ids}

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema of an id; ``None`` if the registry does not know it, asked less than ``UNKNOWN_SECONDS`` ago."""
        if not 0 <= schema_id <= HIGHEST_ID:
            return None
        known = self._known.get(schema_id) or self._files.schema(schema_id)
        if known is None and self._now_seconds() >= self._unknown.get(schema_id, float("-inf")):
            known = self._fetched(schema_id)
        if known is not None:
            self._known[schema_id] = known
        return known

    def ids_of(self, subject: str) -> tuple[int, ...]:
        """The ids of all versions of a subject, also deleted ones; none if the subject is unknown.

        With the registry down, the ids that are known, if any. ``by_id`` then has all of them.
        """
        known, latest = self._files.versions(subject)
        try:
            for number in self._client.version_numbers(subject):
                if number not in known:
                    known[number] = self._kept(*self._client.version(subject, number)).id
        except RegistryUnavailable as silent:
            if not known:
                raise
            log.warning("%s  The %d known schemas of %s stay in use.", silent, len(known), subject)
        else:
            self._files.keep_versions(subject, known, latest=latest)
        return tuple(sorted(set(known.values())))

    def numbers_of(self, subject: str) -> tuple[int, ...]:
        """The numbers of all versions of a subject, also deleted ones, the newest first."""
        self.ids_of(subject)
        return tuple(sorted(self._files.versions(subject)[0], reverse=True))

    def version(self, subject: str, number: int | None = None, *, needs_latest: bool = False) -> Version:
        """A version of a subject, by default the latest; with the registry down, the last known answer.

        Requested in every process, though versions do not change: a subject that was deleted for good and registered
        again gives old numbers to new schemas.

        Args:
            needs_latest: Whether a known answer is not enough for the latest version.

        Raises:
            SubjectVersionUnknown: There is no such subject or version.
        """
        ids, latest = self._files.versions(subject)
        try:
            version = self._kept(*self._client.version(subject, number))
        except RegistryUnavailable as silent:
            known = latest if number is None else number
            if known is None or known not in ids or (number is None and needs_latest):
                raise
            log.warning("%s  The known version %d of %s stays in use.", silent, known, subject)
            return Version(subject, known, ids[known])
        latest = version.number if number is None else latest
        self._files.keep_versions(subject, {**ids, version.number: version.id}, latest=latest)
        return version

    def _fetched(self, schema_id: int) -> Schema | None:
        registered = self._client.schema(schema_id)
        if registered is not None:
            return self._resolved(registered)
        self._unknown[schema_id] = self._now_seconds() + UNKNOWN_SECONDS
        return None

    def _kept(self, version: Version, schema: Registered) -> Version:
        """The version; its schema is then known by its id."""
        if self._known.get(version.id) is None and self._files.schema(version.id) is None:
            self._known[version.id] = self._resolved(schema)
        return version

    def _resolved(self, registered: Registered) -> Schema:
        """The schema with all references, written to the cache."""
        references: dict[str, Referenced] = {}
        self._resolve(registered.references, references, met=set())
        schema = Schema(registered.id, registered.type, registered.text, tuple(references.values()))
        self._files.keep_schema(schema)
        return schema

    def _resolve(self, named: Collection[Reference], found: dict[str, Referenced], *, met: set[str]) -> None:
        """Add the referenced schemas, each before the schemas that refer to it.

        Source: Confluent's serializers, which take the first of two references with one name.
        """
        for reference in named:
            if reference.name in met:
                continue
            met.add(reference.name)
            _, schema = self._client.version(reference.subject, reference.version)
            self._resolve(schema.references, found, met=met)
            found[reference.name] = Referenced(reference.name, schema.text)


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """Schemas by id.

    Attributes:
        reader: The version whose record every message becomes.
    """

    registry: Schemas
    reader: Version
    by_id: Mapping[int, Schema]

    @property
    def unknown(self) -> str:
        """Spark SQL: whether a frame names a schema that is not among these."""
        return other_schema_than(self.by_id)

    def schema_of_reader(self, type_: str) -> tuple[Schema, str]:
        """The reader's schema, and its name in error messages.

        Raises:
            FormatMistake: It is of another type.
        """
        schema, label = self.by_id[self.reader.id], f"version {self.reader.number} of {self.reader.subject}"
        if schema.type != type_:
            message = f"{label} is a schema of the type {schema.type}, not {type_}"
            raise FormatMistake(f"format.{type_.lower()}.registry", message)
        return schema, label

    def and_of(self, ids: Iterable[int]) -> KnownSchemas | None:
        """These schemas and those of more ids; none if the registry knows none of them.

        Raises:
            KdiError: As ``Schemas``; also if the registry is down.
        """
        found = {schema_id: schema for schema_id, schema in self.registry.by_ids(ids).items() if schema is not None}
        return replace(self, by_id={**self.by_id, **found}) if found else None


def version_numbers(wanted: RegistrySchemas) -> tuple[int, ...]:
    """The versions of a stream's subject, the newest first; raises as ``known_schemas``."""
    return Schemas(wanted.registry, home=Settings.from_environment().home).numbers_of(wanted.subject)


def known_schemas(wanted: RegistrySchemas, *, needs_latest: bool = False) -> KnownSchemas:
    """The schemas of a stream's subject.

    Args:
        needs_latest: As for ``Schemas.version``.

    Raises:
        KdiError: As ``Schemas``; with the registry down only if it was never asked before, or the latest is needed.
    """
    registry = Schemas(wanted.registry, home=Settings.from_environment().home)
    reader = registry.version(wanted.subject, wanted.version, needs_latest=needs_latest)
    known = registry.by_ids({*registry.ids_of(wanted.subject), reader.id})
    return KnownSchemas(registry, reader, {n: schema for n, schema in sorted(known.items()) if schema is not None})
