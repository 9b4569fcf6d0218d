"""Rules: why a message becomes a dead letter, as data that each pass over the messages evaluates; and SQL literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason why a message becomes a dead letter.

    Attributes:
        reason: One word for statistics and filters, e.g. ``wrong_type``.
        predicate: Spark SQL over the working columns: the rule holds where it is true, not where it is null.
        field: Path of the faulty field; empty for the whole message.
        reason_sql, field_sql: Spark SQL of type string that gives reason and field, where they differ by message.
    """

    reason: str
    predicate: str
    field: str = ""
    reason_sql: str = ""
    field_sql: str = ""


def any_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: whether a rule holds."""
    return " OR ".join(f"coalesce({r.predicate}, false)" for r in rules) or "false"


def first_of(rules: Sequence[Rule]) -> str:
    """Spark SQL: the number of the first rule that holds, counted from 1; null if none does."""
    return "CASE" + "".join(f" WHEN {r.predicate} THEN {n}" for n, r in enumerate(rules, 1)) + " END"


def reason_of(number: str, rules: Sequence[Rule]) -> str:
    """Spark SQL: the reason of the rule with this number."""
    return _text_of(number, [(r.reason, r.reason_sql) for r in rules])


def field_of(number: str, rules: Sequence[Rule]) -> str:
    """Spark SQL: the field of the rule with this number; null for the whole message."""
    return f"nullif({_text_of(number, [(r.field, r.field_sql) for r in rules])}, '')"


def _text_of(number: str, texts: Sequence[tuple[str, str]]) -> str:
    by_message = "".join(f" WHEN {number} = {n} THEN {sql}" for n, (_, sql) in enumerate(texts, 1) if sql)
    # Not element_at: Spark takes its value for never null if no element is, also where the number is.
    constant = f"get(array({', '.join(literal(text) for text, _ in texts)}), {number} - 1)"
    return f"CASE{by_message} ELSE {constant} END" if by_message else constant


def literal(text: str) -> str:
    """A Spark SQL string literal of the text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def name(identifier: str) -> str:
    """A Spark SQL identifier in backticks; it may have any characters."""
    return "`" + identifier.replace("`", "``") + "`"
