"""Streams that share a topic by their routes: link them to each other, and check that they agree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_rules import RouteMember
from kdi_assets.documents.model.stream import Stream

if TYPE_CHECKING:
    from kdi_assets.documents.loading.errors import DocumentMistake
    from kdi_assets.documents.loading.yaml_documents import YamlDocument

SHARED_FIELDS = {
    "schema": attrgetter("record_ddl"),
    "format": attrgetter("format"),
    "compression": attrgetter("compression"),
    "tombstones": attrgetter("tombstones"),
    "contract.types": attrgetter("contract.types"),
}
"""Fields that decide how a message is decoded, so all streams of a group must agree on them."""


def route_groups(streams: Collection[Stream]) -> list[tuple[Stream, ...]]:
    """The streams that have a route, grouped by cluster and topic."""
    routed = sorted((s for s in streams if s.route_group), key=lambda s: (s.route_group or (), s.name))
    return [tuple(group) for _, group in groupby(routed, key=lambda s: s.route_group)]


def link_routes(group: Collection[Stream]) -> Iterator[Stream]:
    """The streams of a group; each knows all members, and the stream with ``rest`` knows the others' conditions."""
    routes = [(stream, stream.route) for stream in group if stream.route]
    members = {
        s.name: RouteMember(route.when, route.rest is not None, s.app_id, retired=s.status == "retired")
        for s, route in routes
    }
    for stream, route in routes:
        others = {s.name: other.when for s, other in routes if s is not stream and other.when}
        yield replace(stream, route=replace(route, others=others if route.rest else {}, group=members))


def route_mistakes(
    group: Collection[Stream], documents: Mapping[str, YamlDocument], *, complete: bool
) -> Iterator[DocumentMistake]:
    """Why the streams cannot be one route group.

    Args:
        documents: By stream.
        complete: Every document of the topic could be read; if not, an unreadable one may have the rest.
    """
    rest, *others = sorted(group, key=lambda s: not (s.route and s.route.rest))
    if rest.route and not rest.route.rest:
        if complete:
            message = f"no stream of {rest.topic} has the rest, so a message that no condition takes would be lost"
            yield documents[rest.name].mistake("route", message, "rest: dead_letters, or rest: rows, in one of them")
        return
    for other in others:
        yield from _differences(rest, other, documents[rest.name], documents[other.name])
    yield from _unmasked(rest, others, documents[rest.name])


def _differences(
    rest: Stream, other: Stream, rest_document: YamlDocument, document: YamlDocument
) -> Iterator[DocumentMistake]:
    if other.route and other.route.rest:
        message = f"{rest.name} ({rest_document.place('route.rest')}) has the rest of {rest.topic} already"
        yield document.mistake("route.rest", message, "remove one of the two")
    for field, value_of in SHARED_FIELDS.items():
        if _normalized(value_of(rest)) != _normalized(value_of(other)):
            message = f"differs from that of {rest.name} ({rest_document.place(field)})"
            right = "the same value: the streams of a route group must decode a message alike"
            yield document.mistake(field, message, right)


def _unmasked(rest: Stream, others: Collection[Stream], document: YamlDocument) -> Iterator[DocumentMistake]:
    """Dead letters of the rest can hold messages of every stream, with fields that another stream masks."""
    if rest.dead_letter_payload in ("keep", "withhold"):
        return
    masked = [(s.name, path) for s in others for path in s.mask if path not in rest.mask]
    masked += [
        (s.name, f"what is tagged {tag}")
        for s in others
        for tag in s.mask_tagged
        if tag not in rest.mask_tagged or s.tags != rest.tags
    ]
    if masked:
        stream, path = masked[0]
        message = f"dead letters of the rest would show {path}, which {stream} masks"
        yield document.mistake("dead_letter_payload", message, "withhold, or keep if they may, or the same mask here")


def _normalized(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value
