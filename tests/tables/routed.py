"""Three tables that share a topic of web requests by their routes, and the messages of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kdi_assets.documents.loading.route_groups import link_routes
from kdi_assets.documents.model.message_rules import Route
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.shared_read import Drained, drain_together
from tests.driven import DrivenStream
from tests.kafka_log import Produced
from tests.oracle import WEB_REQUESTS

METHODS = {"read": ("GET", "HEAD"), "written": ("POST", "PUT"), "gone": ("DELETE",)}
"""Table to the methods of its requests; the last one has the rest. ``PATCH`` has no table."""
GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
PATCH = GOOD.replace("GET", "PATCH")


def tables_of(stream: Stream, methods: Mapping[str, tuple[str, ...]] = METHODS) -> dict[str, Stream]:
    """The streams of a group over the topic of another stream."""
    conditions = {name: f"method IN {taken!r}".replace(",)", ")") for name, taken in methods.items()}
    routes = {name: Route(when, "dead_letters" if name == "gone" else None) for name, when in conditions.items()}
    group = [replace(stream, table=f"bronze/{name}", route=route) for name, route in routes.items()]
    return {stream.name.removeprefix("bronze/"): stream for stream in link_routes(group)}


def group_of(web: DrivenStream, methods: Mapping[str, tuple[str, ...]] = METHODS) -> dict[str, DrivenStream]:
    """The group over the stream's topic."""
    return {name: replace(web, stream=stream) for name, stream in tables_of(web.stream, methods).items()}


def drain_group(
    tables: Sequence[DrivenStream], *, at: Callable[[Stream, str], None] = lambda stream, point: None
) -> dict[str, Drained]:
    """One pass for the tables; the results by the last part of their names."""
    drained = drain_together([t.stream for t in tables], lake=tables[0].lake, session=tables[0].session, at=at)
    return {name.rpartition("/")[2]: done for name, done in drained.items()}


def owner(message: Produced, methods: Mapping[str, tuple[str, ...]] = METHODS) -> str:
    """The table of a message, by Python's own reading; none for a tombstone."""
    if message.value is None:
        return ""
    try:
        said = json.loads(message.value)
        decoded = isinstance(said["status"], int) and abs(said["status"]) < 2**31
    except ValueError:
        decoded = False
    return next((name for name, taken in methods.items() if decoded and said["method"] in taken), "gone")


def assert_each_message_in_its_table(tables: dict[str, DrivenStream], produced: Sequence[Produced]) -> None:
    """Every offset once, in the rows or dead letters of its table; every audit adds up.

    The rest also has, as dead letters, good messages without a table.
    """
    reading = replace(WEB_REQUESTS, is_good=lambda m: WEB_REQUESTS.is_good(m) and b"PATCH" not in (m.value or b""))
    for name, table in tables.items():
        table.assert_each_offset_once([m for m in produced if owner(m) == name], reading=reading)
        audit = table.audit()
        filtered = sum(owner(m) not in ("", name) for m in produced)
        assert (audit.complete, audit.filtered) == (True, filtered), (name, audit.notes)
