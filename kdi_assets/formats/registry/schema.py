"""What a registry answers: schemas, the schemas that they refer to, versions of subjects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """How a schema names another one, and under which subject and version that one is kept."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Referenced:
    """A schema that another one refers to.

    Attributes:
        name: What the referring text calls it: full name (Avro), ``$ref`` (JSON) or import path (Protobuf).
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """What an id stands for, for ever.

    Attributes:
        type: ``AVRO``, ``JSON`` or ``PROTOBUF``; registries may know others.
        text: As it was registered.
        references: Also those of references; each before whatever refers to it, and each name once.
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
    """One answer of a registry: its references are named, not yet followed."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...]
