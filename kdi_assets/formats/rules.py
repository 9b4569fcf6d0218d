"""Rules: why a message cannot become a row, as data that both passes over the messages share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason to condemn a message.

    Attributes:
        reason: One word for statistics and filters, e.g. ``wrong_type``.
        predicate: Spark SQL over the working columns; true condemns, null does not.
        field: Path of the field at fault, empty when it is the whole message.
        field_sql: Spark SQL of type string that gives the path, where it is not the same for all messages.
    """

    reason: str
    predicate: str
    field: str = ""
    field_sql: str = ""


def any_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: whether one of the rules condemns."""
    return " OR ".join(f"coalesce({r.predicate}, false)" for r in rules) or "false"


def first_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: the number of the first rule that condemns, counted from 1; null if none does."""
    return "CASE" + "".join(f" WHEN {r.predicate} THEN {n}" for n, r in enumerate(rules, 1)) + " END"


def told_by(number: str, texts: Sequence[str]) -> str:
    """Spark SQL: the text of the rule with this number."""
    return f"element_at(array({', '.join(literal(text) for text in texts)}), {number})"


def field_told_by(number: str, rules: Sequence[Rule]) -> str:
    """Spark SQL: the path of the field that the rule with this number condemns; null if it is the whole message."""
    own = "".join(f" WHEN {number} = {n} THEN {r.field_sql}" for n, r in enumerate(rules, 1) if r.field_sql)
    told = told_by(number, [r.field for r in rules])
    return f"nullif(CASE{own} ELSE {told} END, '')" if own else f"nullif({told}, '')"


def literal(text: str) -> str:
    """A Spark SQL string literal of the text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def name(identifier: str) -> str:
    """A Spark SQL identifier, whatever characters it has."""
    return "`" + identifier.replace("`", "``") + "`"
