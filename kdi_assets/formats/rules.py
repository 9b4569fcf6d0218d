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
        reason_sql, field_sql: Spark SQL of type string that give them, where they are not the same for all messages.
    """

    reason: str
    predicate: str
    field: str = ""
    reason_sql: str = ""
    field_sql: str = ""


def any_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: whether one of the rules condemns."""
    return " OR ".join(f"coalesce({r.predicate}, false)" for r in rules) or "false"


def first_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: the number of the first rule that condemns, counted from 1; null if none does."""
    return "CASE" + "".join(f" WHEN {r.predicate} THEN {n}" for n, r in enumerate(rules, 1)) + " END"


def reason_told_by(number: str, rules: Sequence[Rule]) -> str:
    """Spark SQL: the reason of the rule with this number."""
    return _told_by(number, [(r.reason, r.reason_sql) for r in rules])


def field_told_by(number: str, rules: Sequence[Rule]) -> str:
    """Spark SQL: the path of the field that the rule with this number condemns; null if it is the whole message."""
    return f"nullif({_told_by(number, [(r.field, r.field_sql) for r in rules])}, '')"


def _told_by(number: str, texts: Sequence[tuple[str, str]]) -> str:
    own = "".join(f" WHEN {number} = {n} THEN {sql}" for n, (_, sql) in enumerate(texts, 1) if sql)
    told = f"element_at(array({', '.join(literal(text) for text, _ in texts)}), {number})"
    return f"CASE{own} ELSE {told} END" if own else told


def literal(text: str) -> str:
    """A Spark SQL string literal of the text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def name(identifier: str) -> str:
    """A Spark SQL identifier, whatever characters it has."""
    return "`" + identifier.replace("`", "``") + "`"
