"""The schemas that a drain knows: those of the stream's subject, and whatever else its messages turn out to name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kdi_assets.formats.decoder import FormatMistake
from kdi_assets.formats.framing import other_schema_than
from kdi_assets.formats.registry.schemas import Schemas
from kdi_assets.message_format import RegistrySchemas
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.formats.registry.schema import Schema, Version

MOST_IDS = 1000
"""Ids that nobody knew, in one plan. Each is a question; messages that have no frame may seem to name millions."""


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """Schemas by id.

    Attributes:
        reader: The version that every message becomes, and its schema's id.
    """

    registry: Schemas
    reader: Version
    by_id: Mapping[int, Schema]

    @property
    def unknown(self) -> str:
        """Spark SQL: whether a frame names a schema that is not among these."""
        return other_schema_than(self.by_id)

    def schema_of_reader(self, type_: str) -> tuple[Schema, str]:
        """The schema that every message becomes, and what mistakes call it.

        Raises:
            FormatMistake: It is of another type.
        """
        schema, called = self.by_id[self.reader.id], f"version {self.reader.number} of {self.reader.subject}"
        if schema.type != type_:
            message = f"{called} is a schema of the type {schema.type}, not {type_}"
            raise FormatMistake(f"format.{type_.lower()}.registry", message)
        return schema, called

    def and_of(self, ids: Iterable[int]) -> KnownSchemas | None:
        """These and those of more ids; none if the registry knows no schema of any of them.

        Raises:
            KdiError: As ``Schemas`` says; of a registry that is down, because no message may be judged by that.
        """
        found = {schema_id: schema for schema_id, schema in self.registry.by_ids(ids).items() if schema is not None}
        return replace(self, by_id={**self.by_id, **found}) if found else None


def known_schemas(asked: RegistrySchemas) -> KnownSchemas:
    """The versions of a stream's subject.

    Raises:
        KdiError: As ``Schemas`` says; with the registry down only if it was never asked before.
    """
    registry = Schemas(asked.registry, home=Settings.from_environment().home)
    reader = registry.version(asked.subject, asked.version)
    known = registry.by_ids({*registry.ids_of(asked.subject), reader.id})
    return KnownSchemas(registry, reader, {n: schema for n, schema in sorted(known.items()) if schema is not None})
