"""What a document may ask of messages: masks, expectations, contract, routes, limits. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kdi_assets.stream.field_types import Declared, NotWritten, Share, Sql, wrong

TombstonePolicy = Literal["skip", "row", "dead_letter"]
"""What a message without a value becomes: nothing, and counted; a row whose record is null; or a dead letter."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What stands in a column in place of its value; null stays null.

    Attributes:
        how: ``drop``: there is no such column; ``null``; ``hash``: HMAC-SHA-256 of the value's text, in hex;
            ``keep_last``: the last characters of the value's text, asterisks for the others.
        secret: The environment variable with the key of ``hash``.
        keep: How many characters ``keep_last`` keeps; of a text that is no longer than that, none.
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
    raise wrong(f"{value!r} is no mask", "drop, null, {keep_last: 4}, or {hash: {env: NAME}} with a variable's name")


DeadLetterPayload = Literal["keep", "mask", "withhold"]
"""What dead letters hold of a message: all of it; its value alone, as masked JSON, if it is JSON; or nothing."""

ExpectationAction = Literal["warn", "dead_letter", "fail"]
"""What a message that does not meet an expectation does: be counted, become a dead letter, or stop the drain."""


@dataclass(frozen=True, slots=True)
class Expectation(Declared):
    """A condition that every message that is to be a row should meet, and what happens where one does not."""

    sql: Annotated[Sql, Field(examples=["status BETWEEN 100 AND 599"])]
    """Spark SQL condition over the same names as `date`. What is not true (false, or null, or it raises) does not
    meet it."""
    then: Annotated[ExpectationAction, Field(examples=["warn"])] = "warn"
    """warn: the message is a row and is counted; dead_letter: it becomes one, `expectation_not_met`; fail: the drain
    stops before anything is committed."""


ContractPolicy = Literal["evolve", "freeze", "discard_value", "discard_row"]
"""What becomes of what the record does not allow for: the table takes it in; the drain stops; the value is dropped, and
counted; or the message is a dead letter."""


@dataclass(frozen=True, slots=True)
class Contract(Declared):
    """What becomes of messages that are other than the record says."""

    new_columns: Annotated[ContractPolicy, Field(examples=["evolve"])] = "discard_value"
    """Messages with fields that the record has not. discard_value: the fields are left out; discard_row: the message
    is a dead letter, `unknown_field`; freeze: the drain stops before anything is committed; evolve: the table gets
    the columns, in the commit of the rows. Each field is counted by name in any case."""
    types: Annotated[ContractPolicy, Field(examples=["discard_value"])] = "discard_row"
    """Messages with values that do not suit the declared type. discard_row: the message is a dead letter;
    discard_value: the field is null, counted by name, and the message is a row (JSON alone); freeze: the drain stops
    before anything is committed; evolve: the column gets a wider type in the commit of the rows, of a table that
    delta-rs then reads no rows of."""

    @property
    def evolves(self) -> bool:
        """Whether the commit of the rows may change the table's columns."""
        return "evolve" in (self.new_columns, self.types)

    @property
    def leaves_out(self) -> bool:
        """Whether messages become rows without the values that do not suit their types."""
        return self.types == "discard_value"


@dataclass(frozen=True, slots=True)
class Explode:
    """What of a message becomes rows, one for each element.

    Attributes:
        name: What ``columns`` and ``date`` call an element, and the column that it is.
        sql: Spark SQL of an array, over the names that a filter knows.
    """

    name: str
    sql: str


def explode_of(value: object) -> object:
    """What is exploded as documents write it: one name for an element, to the Spark SQL of the array."""
    if value is None or isinstance(value, Explode):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise wrong(f"{value!r} is not a name and an array", "one of each, e.g. {item: items}")
    ((name, array),) = value.items()
    if not isinstance(name, str) or not re.fullmatch(r"(?!_kdi_)[A-Za-z_]\w*", name):
        raise wrong(f"{name!r} is no name for an element", "letters, digits and '_', e.g. item")
    if not isinstance(array, str) or not array.strip():
        raise wrong(f"{array!r} is no expression", "Spark SQL of an array, e.g. {item: items}")
    return Explode(name, array)


@dataclass(frozen=True, slots=True)
class DeadLetterLimit(Declared):
    """How many dead letters a plan may have; it is passed by more than ``count`` that are also more than ``share``."""

    share: Annotated[Share, Field(examples=[0.1])] = 0.5
    """Share of dead letters among the messages of one plan that should become rows (rows and dead letters; neither
    tombstones nor what is filtered). 1 is no limit."""
    count: Annotated[int, Field(strict=True, ge=0, examples=[1000])] = 100
    """So many dead letters of one plan are allowed, whatever their share."""

    def is_passed_by(self, dead_letters: int, *, of: int) -> bool:
        """Whether so many dead letters are too many of so many messages that should become rows."""
        return dead_letters > self.count and dead_letters > self.share * of

    def __str__(self) -> str:
        return f"more than {self.count:,} and more than {self.share:.4g} of them"


Rest = Literal["dead_letters", "rows"]
"""What becomes of the messages of a shared topic that no condition takes. Those that nobody can judge, because they are
not decoded or a condition raises, are dead letters in either case."""


@dataclass(frozen=True, slots=True)
class RouteMember:
    """What a stream of a route group knows of each of its streams, itself too.

    Attributes:
        when: Its condition; empty: it has the rest alone.
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
    """Which messages a stream takes of a topic that it shares with others; with them it makes a route group.

    Attributes:
        others: Of the stream that has the rest, the conditions of the other ones, by stream: without them nobody knows
            what is left.
        group: All streams of the group, by name: no verdict asks for them, but a change of conditions concerns all.
    """

    when: Annotated[Sql, Field(examples=["kind = 'order'"])] = ""
    """Spark SQL condition over the same names as `date`: the messages for which it is true are this stream's;
    several streams may take the same one. Without it, nothing but the rest."""
    rest: Annotated[Rest | None, Field(examples=["dead_letters"])] = None
    """Given by exactly one stream of the group: it has the rest, the messages that no condition takes, as
    dead_letters (`unrouted`) or as rows. What nobody can decode is among its dead letters either way."""
    others: Annotated[Mapping[str, str], NotWritten()] = field(default_factory=dict)
    group: Annotated[Mapping[str, RouteMember], NotWritten()] = field(default_factory=dict)

    @model_validator(mode="after")
    def _says_something(self) -> Route:
        if not self.when and self.rest is None:
            raise wrong("takes no message", "a condition, when: kind = 'order', or the rest, rest: dead_letters")
        return self

    @property
    def conditions(self) -> dict[str, str]:
        """Every condition that the stream's verdicts need, by the field of the document that it stands in."""
        own = {ROUTE: self.when} if self.when else {}
        return {**own, **{f"{ROUTE} of {stream}": when for stream, when in sorted(self.others.items())}}


ROUTE = "route.when"
