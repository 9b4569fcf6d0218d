"""Values from a registry: schemas, the schemas that they refer to, versions of subjects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema: its name for another one, and that one's subject and version."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Referenced:
    """A schema that another one refers to.

    Attributes:
        name: Its name in the referring text: full name (Avro), ``$ref`` (JSON) or import path (Protobuf).
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of an id; it never changes.

    Attributes:
        type: ``AVRO``, ``JSON`` or ``PROTOBUF``; registries may have others.
        text: As it was registered.
        references: All, also indirect ones; each name once, and before the schemas that refer to it.
    """

    id: int
    type: str
    text: str
    references: tuple[Referenced, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject, and the id of its schema."""

    subject: str
    number: int
    id: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry answers it: the references are not yet resolved."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...]
