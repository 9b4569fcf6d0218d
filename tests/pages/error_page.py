"""The generated part of ``docs/errors.md``; ``python -m tests.pages.error_page`` writes it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kdi_assets
from kdi_assets.errors import AGAIN, KdiError, Transient

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
BEGIN, END = "<!-- all errors: written by `make errors` -->", "<!-- by hand -->"
BASES = ("AccessRefused", "ContractBroken", "Problem", "Undrainable")
"""They have texts, and only their subclasses are raised."""


class Placeholder(str):
    """``{stream}``: stands for the value of a field, whatever a text does with it."""

    def __format__(self, spec: str) -> str:
        return str(self)

    def __getattr__(self, name: str) -> Placeholder:
        return Placeholder(f"{{{self.strip('{}')}.{name}}}")

    partition = property(lambda self: self.__getattr__("partition"))

    def __iter__(self) -> Iterator[str]:
        return iter((self,))

    def _itself(self, *_: object) -> Placeholder:
        return self

    __call__ = __getitem__ = __add__ = __radd__ = __sub__ = __truediv__ = _itself


VALUES: dict[tuple[str, str], Any] = {
    ("MessagesGone", "missing"): SimpleNamespace(rows_by_date={}, rows=0, letters=0, messages=0),
    ("RetentionTooShort", "retention"): timedelta(0),
    ("RetentionTooShort", "least"): timedelta(days=1),
    **{(name, "has_numbers"): False for name in ("LedgerGap", "RowsWithoutPositions", "TableReplaced")},
    ("TopicTruncated", "read"): SimpleNamespace(offset=0, timestamp=0),
    ("TopicTruncated", "found"): SimpleNamespace(timestamp=0),
}
"""Fields with which texts compute; what they run does not show them, except for the day of ``RetentionTooShort``."""


def updated(page: str) -> str:
    """The page with all errors as the code has them."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    rooms = groupby(errors(), lambda error: error.__module__.split(".")[1])
    return f"{before}{BEGIN}\n\n{''.join(_table(room, list(of)) for room, of in rooms)}{END}{after}"


def errors() -> list[type[KdiError]]:
    """All errors that are raised, by room and name."""
    for module in pkgutil.walk_packages(kdi_assets.__path__, "kdi_assets."):
        if module.name != "kdi_assets.resources.preloaded":  # its import has effects
            importlib.import_module(module.name)
    found = {e for e in _subclasses(KdiError) if e.__module__.startswith("kdi_assets.") and _has_texts(e)}
    raised = (e for e in found if e.__name__ not in BASES)
    return sorted(raised, key=lambda error: (error.__module__.split(".")[1], error.__name__))


def _subclasses(of: type[KdiError]) -> Iterator[type[KdiError]]:
    for each in of.__subclasses__():
        yield each
        yield from _subclasses(each)


def _has_texts(error: type[KdiError]) -> bool:
    return hasattr(error, "what_to_run") or error.message_parts is not KdiError.message_parts


def _table(room: str, of: list[type[KdiError]]) -> str:
    lines = [f"| `{e.__name__}` | {_retry(e)} | {_happened(e)} | {_run(e)} |\n" for e in of]
    return f"## {room}\n\n| error | | what happened | what to run |\n| --- | --- | --- | --- |\n{''.join(lines)}\n"


def _retry(error: type[KdiError]) -> str:
    return "Transient" if issubclass(error, Transient) else "Terminal"


def _happened(error: type[KdiError]) -> str:
    first, *_ = inspect.cleandoc(error.__doc__ or "").split("\n\n")
    return _text(first.replace("``", "`"))


def _run(error: type[KdiError]) -> str:
    """The commands as code, with the remarks behind them as text."""
    run = _what_to_run(error)
    parts = re.split(r" {3,4}(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))", run)
    texts = (_text(part) if i % 2 else _commands(part) for i, part in enumerate(parts) if part)
    return " ".join(texts).replace(" ; ", "; ")


def _what_to_run(error: type[KdiError]) -> str:
    made = error.__new__(error)
    for field in fields(error):
        has_flag = isinstance(field.default, bool)
        value = field.default if has_flag else Placeholder(f"{{{field.name}}}")
        setattr(made, field.name, VALUES.get((error.__name__, field.name), value))
    return made.message_parts()[2]


def _commands(text: str) -> str:
    joined = re.split(r"(; (?:then|or) )", text)
    return "".join(part if i % 2 else _code(part) for i, part in enumerate(joined) if part)


def _code(command: str) -> str:
    if command == AGAIN:
        return command
    quote = "``" if "`" in command else "`"
    return f"{quote}{command.replace('|', chr(92) + '|')}{quote}"


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
