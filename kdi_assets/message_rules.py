"""What a document may ask of messages, typed: masks, expectations, contract, routes, limits. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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


DeadLetterPayload = Literal["keep", "mask", "withhold"]
"""What dead letters hold of a message: all of it; its value alone, as masked JSON, if it is JSON; or nothing."""

ExpectationAction = Literal["warn", "dead_letter", "fail"]
"""What a message that does not meet an expectation does: be counted, become a dead letter, or stop the drain."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A Spark SQL condition that is true for what is as it should be, over the same names as a stream's columns."""

    sql: str
    then: ExpectationAction = "warn"


ContractPolicy = Literal["evolve", "freeze", "discard_value", "discard_row"]
"""What becomes of what the record does not allow for: the table takes it in; the drain stops; the value is dropped, and
counted; or the message is a dead letter."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What becomes of messages that are other than the record.

    Attributes:
        new_columns: Where they have fields that the record has not.
        types: Where a value does not suit the type that is declared.
    """

    new_columns: ContractPolicy = "discard_value"
    types: ContractPolicy = "discard_row"

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


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """How many dead letters a plan may have; it is passed by more than ``count`` that are also more than ``share``.

    Attributes:
        share: Of the messages that should become rows, 0 to 1.
    """

    share: float = 0.5
    count: int = 100

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
        renamed_from: The name that it had before; empty: none.
        retired: Whether it is never drained again.
    """

    when: str
    rest: bool
    app_id: str
    renamed_from: str = ""
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Which messages a stream takes of a topic that it shares with others; with them it makes a route group.

    Attributes:
        when: Spark SQL condition over the record's fields and ``kafka``: what it is true of is this stream's; empty:
            nothing but the rest.
        rest: What becomes here of the rest; ``None``: another stream of the group has it.
        others: Of the stream that has the rest, the conditions of the other ones, by stream: without them nobody knows
            what is left.
        group: All streams of the group, by name: no verdict asks for them, but a change of conditions concerns all.
    """

    when: str = ""
    rest: Rest | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    group: Mapping[str, RouteMember] = field(default_factory=dict)

    @property
    def conditions(self) -> dict[str, str]:
        """Every condition that the stream's verdicts need, by the field of the document that it stands in."""
        own = {ROUTE: self.when} if self.when else {}
        return {**own, **{f"{ROUTE} of {stream}": when for stream, when in sorted(self.others.items())}}


ROUTE = "route.when"
