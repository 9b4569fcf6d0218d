"""The document of many topics: its own fields. All other fields are those of a stream, which its topics share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.field_types import (
    NAME,
    NAME_IS,
    TOPIC_NAME,
    TOPIC_NAME_IS,
    Declared,
    TopicName,
    matching,
    wrong,
)
from kdi_assets.wording import did_you_mean

SKIP = "skip"
"""What an exception is if its topic has no table."""
OF_ONE_TABLE = ("topic", "app_id", "renamed_from", "route", "announce")
"""Fields of a stream that topics cannot share."""
_PLACE = re.compile(r"\{(\w+)\}")
_TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Topics:
    """A list of topics, or a pattern; a list has no pattern."""

    names: tuple[str, ...] = ()
    pattern: str = ""

    def match(self, topic: str) -> re.Match[str] | None:
        """The match of the whole topic; ``None`` without one, and for a list."""
        return re.fullmatch(self.pattern, topic) if self.pattern else None


def _topics_of(value: object) -> object:
    if isinstance(value, list) and value:
        return Topics(tuple(_names(value)))
    if isinstance(value, dict) and value.keys() == {"pattern"} and isinstance(value["pattern"], str):
        return Topics(pattern=_compiled(value["pattern"]))
    raise wrong(f"{value!r} is neither a list of topics nor a pattern", r"e.g. [orders, users], or {pattern: shop\..*}")


def _names(value: list[object]) -> Iterator[str]:
    for number, name in enumerate(value):
        if not isinstance(name, str) or not re.fullmatch(TOPIC_NAME, name):
            raise wrong(f"{name!r} is not a name that Kafka takes", TOPIC_NAME_IS, field=f"topics.{number}")
        if name in value[:number]:
            raise wrong(f"{name} is written twice", "keep one of the two", field=f"topics.{number}")
        yield name


def _compiled(pattern: str) -> str:
    if not pattern:
        raise wrong("'' matches no topic", r"e.g. shop\..*", field="topics.pattern")
    try:
        re.compile(pattern)
    except re.error as error:
        said = f"{pattern!r} is not a regular expression: {error}"
        raise wrong(said, r"e.g. shop\..*, of Python's re, for the whole name", field="topics.pattern") from None
    return pattern


def _has_a_place(template: str, info: ValidationInfo) -> str:
    topics: Topics | None = info.data.get("topics")
    places = _PLACE.findall(template)
    if not places:
        raise wrong(f"{template!r} is the same path for every topic", "e.g. bronze/{topic}")
    for place in places if topics else ():
        if place != _TOPIC and place not in _groups(topics):  # type: ignore[arg-type]  # not None in the loop
            raise wrong(f"no part of the topic is called {{{place}}}", did_you_mean(place, [_TOPIC, *_groups(topics)]))  # type: ignore[arg-type]
    return template


def _groups(topics: Topics) -> list[str]:
    """The groups of the pattern: numbers and names."""
    compiled = re.compile(topics.pattern)
    return [*(str(number + 1) for number in range(compiled.groups)), *compiled.groupindex]


def _only_of_a_pattern(new_topics: str, info: ValidationInfo) -> str:
    topics: Topics | None = info.data.get("topics")
    if topics and topics.names:
        raise wrong("belongs to a pattern, and the topics are a list", "remove the line")
    return new_topics


def _of_its_topics(exceptions: Mapping[str, object], info: ValidationInfo) -> Mapping[str, object]:
    topics: Topics | None = info.data.get("topics")
    for topic, written in exceptions.items():
        if topics and topic not in topics.names and not topics.match(topic):
            right = did_you_mean(topic, topics.names) if topics.names else "a topic that the pattern matches"
            raise wrong("is not one of the topics", right, field=f"exceptions.{topic}")
        if isinstance(written, dict) and _TOPIC in written:
            raise wrong("is the topic's own name", "remove the line", field=f"exceptions.{topic}.topic")
    return exceptions


def _exception_of(value: object) -> object:
    if value == SKIP or (isinstance(value, dict) and value):
        return value
    raise wrong(f"{value!r} is neither skip nor fields of a table", "e.g. skip, or {date: to_date(created_at)}")


@dataclass(frozen=True, slots=True)
class TopicTablesSpec(Declared):
    """The own fields of a document of many topics."""

    name: Annotated[str, matching(NAME, "is not a document's name", NAME_IS), Field(examples=["shop"])]
    """The name of this document in commands and messages. The topics that a pattern found are in the file NAME.topics
    beside the document."""
    topics: Annotated[
        Topics,
        BeforeValidator(_topics_of, json_schema_input_type=list[str] | dict[str, str]),
        Field(examples=[["orders", "users"], {"pattern": r"shop\.(.*)"}]),
    ]
    """The Kafka topics, each with a table of its own: a list, or {pattern: …} with a regular expression of Python for
    the whole name. No broker is asked when the documents are loaded: the topics of a pattern are the lines of the file
    NAME.topics, which `kdi check --accept` writes."""
    table: Annotated[str, AfterValidator(_has_a_place), Field(examples=["bronze/{topic}"])]
    """The path of each table below the lake's root ($KDI_LAKE). `{topic}` is the topic's name; `{1}`, or `{name}`, is
    what that group of the pattern matched. `.`, `_` and `-` at the beginning of a part of the path are left out."""
    new_topics: Annotated[Literal["accept", "add"], AfterValidator(_only_of_a_pattern), Field(examples=["add"])] = (
        "accept"
    )
    """What happens when a topic appears that matches the pattern. accept: it is shown, until `kdi check --accept` takes
    it in; add: the sensor takes it in."""
    exceptions: Annotated[
        Mapping[TopicName, Annotated[Any, BeforeValidator(_exception_of, json_schema_input_type=Any)]],
        AfterValidator(_of_its_topics),
        Field(examples=[{"orders": {"date": "to_date(created_at)"}, "tests": "skip"}]),
    ] = field(default_factory=dict)
    """Topic to the fields that its table has instead of the shared ones, or skip: the topic has no table. A field
    replaces the shared one as a whole."""

    def skips(self, topic: str) -> bool:
        """Whether the topic has no table."""
        return bool(self.exceptions.get(topic) == SKIP)

    def table_of(self, topic: str) -> str:
        """The path of a topic's table, if no exception names one. A list's topic, or one that the pattern matches."""
        match = self.topics.match(topic)

        def part(place: re.Match[str]) -> str:
            if place[1] == _TOPIC:
                return topic
            group = int(place[1]) if place[1].isdecimal() else place[1]
            return (match[group] or "") if match else ""

        path = _PLACE.sub(part, self.table)
        return "/".join(step.lstrip("._-") for step in path.split("/"))

    def new(self, topics: Iterable[str], *, pinned: Iterable[str]) -> tuple[str, ...]:
        """The topics that match the pattern and have no table yet, in alphabetical order."""
        known = set(pinned)
        return tuple(sorted(t for t in topics if t not in known and self.topics.match(t) and not self.skips(t)))
