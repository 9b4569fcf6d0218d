"""Types of the fields of documents: each refuses a wrong value and says what would be right.

Streams, clusters and registries are frozen dataclasses; their annotations say how a document writes each field.
Pydantic uses the annotations when a document is read (``documents.loading.validation``). Objects made in Python are not
checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError, PydanticOmit, core_schema

from kdi_assets.wording import did_you_mean

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo

Referred = TypeVar("Referred")

SAID_ELSEWHERE = "said_elsewhere"
"""The type of a pydantic error that is not shown: the mistake is reported at another document."""

DURATION = re.compile(r"(\d{1,6}) (second|minute|hour|day)s?")
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
DAYS = re.compile(r"(\d{1,4}) days?")


class Declared:
    """Base of all that documents declare: a field that the class does not have is a mistake."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class WrittenAs:
    """A field that documents write as ``form``. ``build`` makes its value, or raises ``wrong``."""

    form: Any
    build: Callable[[Any, ValidationInfo], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_after_validator_function(self.build, handler.generate_schema(self.form))


class NotWritten:
    """A field that documents do not have; the loader sets it."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(_no_such_field)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> NoReturn:
        raise PydanticOmit


@dataclass(frozen=True)
class RefusedField:
    """A field that one kind of document does not have and another one does: it says why."""

    said: str
    right: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def refuse(value: object) -> NoReturn:
            raise wrong(self.said, self.right)

        return core_schema.no_info_plain_validator_function(refuse)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> NoReturn:
        raise PydanticOmit


def _no_such_field(value: object) -> NoReturn:
    raise PydanticCustomError("unexpected_keyword_argument", "no such field")


def wrong(message: str, right: str, *, field: str = "") -> PydanticCustomError:
    """The error of a field: what is wrong, and what would be right.

    Args:
        field: The dotted path of the wrong field, if it is not the one that is validated.
    """
    return PydanticCustomError("wrong", "{message}", {"message": message, "right": right, "field": field})


def referred(kind: str, name: str, known: Mapping[str, Referred | None], *, right: str, field: str = "") -> Referred:
    """The object that a document names.

    Args:
        known: By name; ``None``: its own document is wrong, and the mistake is reported there.
        right: What would be right if none is known.
    """
    if name not in known:
        said = f"no {kind} document is named {name!r}"
        raise wrong(said, did_you_mean(name, known) if known else right, field=field)
    if (found := known[name]) is None:
        raise PydanticCustomError(SAID_ELSEWHERE, "the document that it names is wrong")
    return found


def full_match(pattern: str, said: str, right: str) -> Callable[[str], str]:
    """A validator of text that the whole pattern matches; the error quotes the text and continues with ``said``."""
    compiled = re.compile(pattern)

    def matches(value: str) -> str:
        if not compiled.fullmatch(value):
            raise wrong(f"{value!r} {said}", right)
        return value

    return matches


def matching(pattern: str, said: str, right: str) -> AfterValidator:
    """The same as an annotation."""
    return AfterValidator(full_match(pattern, said, right))


AWS_REGION = matching(r"[a-z]{2}(-[a-z]+)+-\d", "is not a region of AWS", "e.g. eu-central-1")


def not_blank(right: str) -> AfterValidator:
    """Text that is not only blanks."""

    def holds_something(value: str) -> str:
        if not value.strip():
            raise wrong("is empty", right)
        return value

    return AfterValidator(holds_something)


Sql = Annotated[str, not_blank("give it Spark SQL")]
TOPIC_NAME = r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}"  # Kafka, "Topic names"
TOPIC_NAME_IS = "letters, digits, '.', '_' and '-', at most 249"
TopicName = Annotated[str, matching(TOPIC_NAME, "is not a name that Kafka takes", TOPIC_NAME_IS)]
TablePath = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*",
        "is not a path below the lake's root",
        "e.g. bronze/web_requests, no '/' at either end",
    ),
]
ColumnPath = Annotated[
    str,
    matching(
        r"(?!_kdi_)[^\s.`]+(\.[^\s.`]+)*",
        "is not the path of a column",
        "names without blanks, nested by dots, none that begins with _kdi_",
    ),
]
FieldPath = Annotated[
    str,
    matching(
        r"(`[^`]+`|[^\s.`[\]]+)(\.(`[^`]+`|[^\s.`[\]]+))*",
        "is not the path of a field",
        'names nested by dots; a name with dots or blanks in backticks, e.g. "`first.name`"',
    ),
]
TopColumn = Annotated[
    str,
    matching(
        r"(?!_kdi_)(?!(?i:date)$)[^\s.`]+",
        "is not a name for this column",
        "a name without dots that no other column has: rescued",
    ),
]
RescuedColumn = Annotated[
    str,
    matching(
        r"(?!_kdi_)(?!(?i:date)( |$))[^\s.`]+( variant)?",
        "is not a name for this column",
        "a name without dots that no other column has: rescued, or with its type: rescued variant",
    ),
]
ExpectationName = Annotated[
    str,
    matching(
        r"[a-z][a-z0-9_]*",
        "is not a name for an expectation",
        "small letters, digits and '_', e.g. status_is_known",
    ),
]
TagName = Annotated[
    str,
    matching(r"[a-z][a-z0-9_.:-]*", "is not the name of a tag", "small letters, digits and '_.:-', e.g. pii"),
]
Owner = Annotated[
    str,  # what Dagster takes
    matching(
        r"team:\S+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}",
        "is neither a team nor an address",
        "e.g. team:web or someone@example.com",
    ),
]
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
NAME_IS = "letters, digits, '_' and '-', e.g. main"
ClusterName = Annotated[str, matching(NAME, "is not a cluster's name", NAME_IS)]
RegistryName = Annotated[str, matching(NAME, "is not a registry's name", NAME_IS)]
ConnectionName = Annotated[str, matching(NAME, "is not a connection's name", NAME_IS)]


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise wrong(f"{value!r} is not a share", "between 0 and 1, e.g. 0.01 for one message in a hundred")
    return value


def _day(value: object) -> object:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise wrong(f"{value!r} is not a date", "e.g. 2020-01-01") from None


def _days(value: object) -> int:
    if not isinstance(value, str) or not (found := DAYS.fullmatch(value)):
        raise wrong(f"{value!r} is not a number of days", "e.g. 2 days, or 0 days")
    return int(found[1])


def _seconds(value: object) -> int:
    if not isinstance(value, str) or not (found := DURATION.fullmatch(value)):
        raise wrong(f"{value!r} is not a length of time", "e.g. 5 minutes; seconds, minutes, hours or days")
    length = int(found[1]) * SECONDS[found[2]]
    if length < 60:
        raise wrong(f"{value!r} is too short", "at least 1 minute, the least that Dagster takes")
    return length


def at_least_a_day(days: int | None) -> int | None:
    """For ``AfterValidator``: rows that are kept for no day would leave as they come."""
    if days == 0:
        raise wrong("'0 days' keeps nothing", "e.g. 400 days; without the field, rows are kept for ever")
    return days


Share = Annotated[float, BeforeValidator(_share)]
Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=str)]
DayOrAuto = Annotated[
    date | Literal["auto"], BeforeValidator(lambda v: v if v == "auto" else _day(v), json_schema_input_type=str)
]
Days = Annotated[int, BeforeValidator(_days, json_schema_input_type=str)]
Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str)]


def start_of(value: object) -> object:
    """A start policy as documents write it: a word, a timestamp with its zone, or offsets by topic partition."""
    if isinstance(value, dict):
        return _next_offsets(value)
    if value in ("earliest", "latest"):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise wrong(
            f"{value!r} does not say where to begin",
            "earliest, latest, e.g. 2026-01-01T00:00:00Z, or {0: 1200} (offset of each)",
        ) from None
    if moment.tzinfo is None:
        raise wrong(f"{value!r} has no time zone", f"e.g. {moment.replace(tzinfo=UTC).isoformat()}")
    return moment


def _next_offsets(value: dict[object, object]) -> dict[object, object]:
    for partition, offset in value.items():
        for number in (partition, offset):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise wrong(f"{{{partition}: {offset}}} is not a topic partition and offset", "e.g. {0: 1200, 1: 0}")
    if not value:
        raise wrong("does not say where to begin", "e.g. {0: 1200, 1: 0}, or earliest")
    return value
