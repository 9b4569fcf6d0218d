"""Streams that share a topic by their routes: what each must know of the others, and what they must agree on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from kdi_assets.stream.message_rules import RouteMember
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from kdi_assets.config.errors import DocumentMistake
    from kdi_assets.config.yaml_documents import YamlDocument

ALIKE = {
    "schema": attrgetter("record_ddl"),
    "format": attrgetter("format"),
    "compression": attrgetter("compression"),
    "tombstones": attrgetter("tombstones"),
    "contract.types": attrgetter("contract.types"),
}
"""What decides how a message is decoded: field of the document to what the stream has of it."""


def route_groups(streams: Collection[Stream]) -> list[tuple[Stream, ...]]:
    """The streams that have a route, by cluster and topic."""
    routed = sorted((s for s in streams if s.route_group), key=lambda s: (s.route_group or (), s.name))
    return [tuple(group) for _, group in groupby(routed, key=lambda s: s.route_group)]


def linked(group: Collection[Stream]) -> Iterator[Stream]:
    """The streams of a group, each with all of them, and with the conditions of the others where they decide."""
    routes = [(stream, stream.route) for stream in group if stream.route]
    members = {
        s.name: RouteMember(route.when, route.rest is not None, s.app_id, retired=s.status == "retired")
        for s, route in routes
    }
    for stream, route in routes:
        others = {s.name: other.when for s, other in routes if s is not stream and other.when}
        yield replace(stream, route=replace(route, others=others if route.rest else {}, group=members))


def disagreements(
    group: Collection[Stream], documents: Mapping[str, YamlDocument], *, whole: bool
) -> Iterator[DocumentMistake]:
    """What keeps a group from being one.

    Args:
        documents: By stream.
        whole: Whether every document of the topic could be read: else the stream that seems missing may be there.
    """
    first, *more = sorted(group, key=lambda s: not (s.route and s.route.rest))
    if first.route and not first.route.rest:
        if whole:
            said = f"no stream of {first.topic} has the rest, so a message that no condition takes would be nowhere"
            yield documents[first.name].mistake("route", said, "rest: dead_letters, or rest: rows, in one of them")
        return
    for other in more:
        yield from _twice(first, other, documents)
        yield from _unlike(first, other, documents)
    yield from _shown(first, more, documents[first.name])


def _twice(first: Stream, other: Stream, documents: Mapping[str, YamlDocument]) -> Iterator[DocumentMistake]:
    if other.route and other.route.rest:
        said = f"{first.name} ({_place(documents[first.name])}) has the rest of {first.topic} already"
        yield documents[other.name].mistake("route.rest", said, "remove one of the two")


def _unlike(first: Stream, other: Stream, documents: Mapping[str, YamlDocument]) -> Iterator[DocumentMistake]:
    for field, of in ALIKE.items():
        if _text(of(first)) != _text(of(other)):
            said = f"is another one than that of {first.name} ({_place(documents[first.name], field)})"
            right = "the same one: the streams of a route group must agree on what a message is"
            yield documents[other.name].mistake(field, said, right)


def _shown(first: Stream, more: Collection[Stream], document: YamlDocument) -> Iterator[DocumentMistake]:
    """Dead letters of the rest hold messages of every stream, and so what these mask."""
    if first.dead_letter_payload in ("keep", "withhold"):
        return
    masked = [(s.name, path) for s in more for path in s.mask if path not in first.mask]
    if masked:
        stream, path = masked[0]
        said = f"dead letters of the rest would show {path}, which {stream} masks"
        yield document.mistake("dead_letter_payload", said, "withhold, or keep if they may, or the same mask here")


def _text(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _place(document: YamlDocument, field: str = "route.rest") -> str:
    return f"{document.file}:{document.line_of(field)}"
