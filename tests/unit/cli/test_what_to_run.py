"""Every error ends with what to run: commands that the command line understands, and what to do before, in brackets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

from kdi_assets.cli.app import app_for
from kdi_assets.errors import AGAIN, KdiError
from tests.pages.error_page import errors

SAME = AGAIN
OTHERS = ("ALTER", "DELETE", "DROP", "RESTORE", "SELECT", "UPDATE")
PROGRAMS = (
    "KDI_LAKE=",
    "aws",
    "dagster",
    "df",
    "hadoop",
    "kafka-configs",
    "kafka-topics",
    "kubectl",
    "mkdir",
    "mv",
    "ls",
    "openssl",
    "pip",
    "rm",
)
GIVEN = {
    "command": "kdi drain bronze/orders",
    "file": "orders/defs.yaml",
    "flags": " --accept-dead-letters",
    "moved": "2026-01-31",
    "right": "kdi check",
    "run": "kdi check",
    "statement": "DROP TABLE requests",
    "then": "kdi drain bronze/orders",
    "statements": "ALTER TABLE requests DROP COLUMN x;",
    "topic": "orders",
}
"""Values of fields by name; a field that is itself a command is given by the code that raises the error."""
PLACEHOLDERS = {"DATE": "2026-01-31", "FOLDER": "defs", "OFFSET": "7"}


def _value(hint: Any, name: str = "") -> Any:
    origin, of = get_origin(hint), get_args(hint)
    if name in GIVEN:
        return GIVEN[name] if hint is str else (GIVEN[name],)
    if origin is Literal:
        return of[0]
    if origin is tuple:
        return (_value(of[0]),) if len(of) == 2 and of[1] is ... else tuple(map(_value, of))
    if origin in (Mapping, dict):
        return {_value(of[0]): _value(of[1])}
    if origin in (list, frozenset, set):
        return origin([_value(of[0])])
    if of:  # a union, or Annotated, or a sequence
        return (_value(of[0]),) if origin and "Sequence" in str(origin) else _value(of[0])
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{f.name: _value(hints[f.name], f.name) for f in fields(hint) if f.init})
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return hint(*(_value(t) for t in get_type_hints(hint).values()))
    plain = {str: "orders", int: 3, float: 1.0, bool: True, Path: Path("/srv/lake"), bytes: b"b", Any: "x", object: "x"}
    times = {date: date(2026, 1, 31), datetime: datetime(2026, 1, 31, tzinfo=UTC), timedelta: timedelta(hours=1)}
    return {**plain, **times}[hint]


def _understood(command: str) -> None:
    """Parse a command of `kdi`, without running it; raises as its command line would refuse it."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)][1:]
    group: Any = typer.main.get_command(app_for(()))
    context = group.make_context("kdi", words)
    while hasattr(group, "commands"):
        name, group, words = group.resolve_command(context, [*context._protected_args, *context.args])
        context = group.make_context(name, words, parent=context)


@pytest.mark.parametrize("error", errors(), ids=lambda each: each.__name__)
def test_what_to_run_is_a_command_that_parses(error: type[KdiError]) -> None:
    made = _value(error)

    happened, safe, run = made.message_parts()

    assert all(text.strip() and "…" not in text for text in (happened, safe, run))
    for part in re.split(r"; (?:then|or) ", re.sub(r" {3,4}\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", run)):
        program = part.split(" ", 1)[0]
        if program == "kdi":
            _understood(part)
        else:
            assert part == SAME or program in OTHERS or part.startswith(PROGRAMS) or program.endswith("/java"), part
