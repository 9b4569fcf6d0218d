"""The rules of a document for its messages: masks, expectations, contract, routes, limits. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kdi_assets.documents.model.field_types import Declared, NotWritten, Share, Sql, wrong

TombstonePolicy = Literal["skip", "row", "dead_letter"]
"""A message without a value is skipped and counted, becomes a row whose record is null, or a dead letter."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What replaces the value of a column; null stays null.

    Attributes:
        how: ``drop``: the table has no such column; ``null``; ``hash``: HMAC-SHA-256 of the value's text, in hex;
            ``keep_last``: the last characters of the value's text, after asterisks for the others.
        secret: The environment variable with the key of ``hash``.
        keep: How many characters ``keep_last`` keeps. A text that is not longer is replaced as a whole.
    """

    how: Literal["drop", "null", "hash", "keep_last"]
    secret: str = ""
    keep: int = 0


def mask_of(value: object) -> object:
    """A mask as documents write it: ``drop``, ``null``, ``{keep_last: 4}`` or ``{hash: {env: NAME}}``."""
    match value:
        case "drop":
            return Mask("drop")
        case None | "null":
            return Mask("null")
        case {"hash": {"env": str(secret), **more}, **others} if re.fullmatch(r"\w+", secret) and not (more or others):
            return Mask("hash", secret=secret)
        case {"keep_last": int(keep), **others} if keep > 0 and not isinstance(keep, bool) and not others:
            return Mask("keep_last", keep=keep)
    raise wrong(f"{value!r} is not a mask", "drop, null, {keep_last: 4}, or {hash: {env: NAME}} with a variable's name")


def tags_of_column(value: object) -> object:
    """A column's tags as documents write them: one name, or several."""
    return (value,) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class FieldUse:
    """What becomes of a field of the messages, if not the column of its name and type.

    Attributes:
        how: ``drop``: no column; expressions see the field if its name and type let them. ``rename``: a column, and a
            name for expressions, in the same place. ``text``: a string column with the value as JSON text.
        name: The new name of ``rename``, without the path.
    """

    how: Literal["drop", "rename", "text"]
    name: str = ""


_COLUMN = r"(?!_kdi_)(?!(?i:date)$)[^\s.`]+"


def field_use_of(value: object) -> object:
    """A field's use as documents write it: ``drop``, ``text`` or ``{rename: name}``."""
    match value:
        case FieldUse():
            return value
        case "drop" | "text":
            return FieldUse(value)
        case {"rename": str(name), **others} if re.fullmatch(_COLUMN, name) and not others:
            return FieldUse("rename", name)
    raise wrong(f"{value!r} is not a use of a field", "drop, text, or {rename: name} with a name without dots")


def steps_of(path: str) -> tuple[str, ...]:
    """The steps of a field's path; a name with dots or blanks is in backticks."""
    return tuple(quoted or plain for quoted, plain in re.findall(r"`([^`]+)`|([^.`]+)", path))


def path_of(steps: Iterable[str]) -> str:
    """The path of steps, as documents write it."""
    return ".".join(step if re.fullmatch(r"[^\s.`]+", step) else f"`{step}`" for step in steps)


DeadLetterPayload = Literal["keep", "mask", "withhold"]
"""What dead letters keep of a message: all of it; only its value, as masked JSON; or nothing."""

ExpectationAction = Literal["warn", "dead_letter", "fail"]
"""A message that does not meet an expectation is counted, becomes a dead letter, or stops the drain."""


@dataclass(frozen=True, slots=True)
class Expectation(Declared):
    """A condition that every message that would be a row should meet, and what happens if one does not."""

    sql: Annotated[Sql, Field(examples=["status BETWEEN 100 AND 599"])]
    """Spark SQL condition over the same names as `date`. A message for which it is false or null, or raises, does not
    meet it."""
    then: Annotated[ExpectationAction, Field(examples=["warn"])] = "warn"
    """warn: the message becomes a row and is counted; dead_letter: it becomes one, with the reason expectation_not_met;
    fail: the drain stops before it commits."""


ContractPolicy = Literal["evolve", "freeze", "discard_value", "discard_row"]
"""What happens to a value that does not fit the record: the table changes; the drain stops; the value is dropped and
counted; or the message becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class Contract(Declared):
    """What happens to messages that do not fit the record."""

    new_columns: Annotated[ContractPolicy, Field(examples=["evolve"])] = "discard_value"
    """Messages with fields that the record does not have. discard_value: the fields are left out; discard_row: the
    message becomes a dead letter, with the reason unknown_field; freeze: the drain stops before it commits; evolve:
    the commit of the rows adds the columns. Each field is always counted by name."""
    types: Annotated[ContractPolicy, Field(examples=["discard_value"])] = "discard_row"
    """Messages with values that do not suit the declared type. discard_row: the message becomes a dead letter;
    discard_value: the field is null and counted by name, and the message becomes a row (JSON only); freeze: the drain
    stops before it commits; evolve: the commit of the rows widens the column, and delta-rs then reads no rows of the
    table."""

    @property
    def evolves(self) -> bool:
        """Whether the commit of the rows may change the table's columns."""
        return "evolve" in (self.new_columns, self.types)

    @property
    def leaves_out(self) -> bool:
        """Whether values that do not suit their types are left out of rows."""
        return self.types == "discard_value"


ColumnPolicy = Literal["evolve", "freeze"]
"""What happens if the rows have other columns than the table: the table gets them; or the run stops."""


@dataclass(frozen=True, slots=True)
class ColumnContract(Declared):
    """What readers of a refined table are promised of its columns."""

    new_columns: Annotated[ColumnPolicy, Field(examples=["freeze"])] = "evolve"
    """Rows with columns that the table does not have. evolve: all rows are computed again, with them; freeze: the run
    stops before it commits."""
    types: Annotated[ColumnPolicy, Field(examples=["freeze"])] = "evolve"
    """Rows with columns of another type, or without a column of the table. evolve and freeze as for new_columns."""


@dataclass(frozen=True, slots=True)
class Explode:
    """The array of a message whose elements become rows.

    Attributes:
        name: The name of an element in ``columns`` and ``date``, and of its column.
        sql: Spark SQL of an array, over the names that a filter knows.
    """

    name: str
    sql: str


def explode_of(value: object) -> object:
    """An explode as documents write it: a name for an element, to the Spark SQL of the array."""
    if value is None or isinstance(value, Explode):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise wrong(f"{value!r} is not a name and an array", "one of each, e.g. {item: items}")
    ((name, array),) = value.items()
    if not isinstance(name, str) or not re.fullmatch(r"(?!_kdi_)[A-Za-z_]\w*", name):
        raise wrong(f"{name!r} is not a name for an element", "letters, digits and '_', e.g. item")
    if not isinstance(array, str) or not array.strip():
        raise wrong(f"{array!r} is not an expression", "Spark SQL of an array, e.g. {item: items}")
    return Explode(name, array)


@dataclass(frozen=True, slots=True)
class DeadLetterLimit(Declared):
    """How many dead letters a plan may have: more than ``count`` that are also more than ``share`` are too many."""

    share: Annotated[Share, Field(examples=[0.1])] = 0.5
    """Share of dead letters among the rows and dead letters of one plan; tombstones and filtered messages do not count.
    1 switches the limit off."""
    count: Annotated[int, Field(strict=True, ge=0, examples=[1000])] = 100
    """This many dead letters of one plan are always allowed, whatever their share."""

    def is_passed_by(self, dead_letters: int, *, of: int) -> bool:
        """Whether so many dead letters are too many, among so many rows and dead letters."""
        return dead_letters > self.count and dead_letters > self.share * of

    def __str__(self) -> str:
        return f"more than {self.count:,} and more than {self.share:.4g} of them"


Rest = Literal["dead_letters", "rows"]
"""What the messages of a shared topic become for which no condition is true. A message that is not decoded, or for
which a condition raises, is always a dead letter."""


@dataclass(frozen=True, slots=True)
class RouteMember:
    """One stream of a route group.

    Attributes:
        when: Its condition; empty: it has only the rest.
        rest: Whether it has the rest.
        app_id: Prefix of its ledger's transaction ids.
        retired: Whether it is never drained again.
    """

    when: str
    rest: bool
    app_id: str
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Route(Declared):
    """Which messages of a shared topic belong to a stream. The streams of the topic are a route group.

    Attributes:
        others: The conditions of the other streams, by stream; only for the stream that has the rest.
        group: All streams of the group, by name. Verdicts do not use it; a change of conditions does.
    """

    when: Annotated[Sql, Field(examples=["kind = 'order'"])] = ""
    """Spark SQL condition over the same names as `date`: messages for which it is true belong to this stream. A message
    may belong to several streams. Without it, the stream has only the rest."""
    rest: Annotated[Rest | None, Field(examples=["dead_letters"])] = None
    """Exactly one stream of the group gives it. It has the messages for which no condition is true, as dead_letters
    (with the reason unrouted) or as rows. Messages that cannot be decoded are always its dead letters."""
    others: Annotated[Mapping[str, str], NotWritten()] = field(default_factory=dict)
    group: Annotated[Mapping[str, RouteMember], NotWritten()] = field(default_factory=dict)

    @model_validator(mode="after")
    def _says_something(self) -> Route:
        if not self.when and self.rest is None:
            raise wrong("takes no message", "a condition, when: kind = 'order', or the rest, rest: dead_letters")
        return self

    @property
    def conditions(self) -> dict[str, str]:
        """Field of the document to condition: all that the stream's verdicts need."""
        own = {ROUTE: self.when} if self.when else {}
        return {**own, **{f"{ROUTE} of {stream}": when for stream, when in sorted(self.others.items())}}


ROUTE = "route.when"
