"""Commands of `kdi` as a person types them, run in the test's own process."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kdi_assets.cli.main import main


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects on stdout: exactly one on each line."""
        return [json.loads(line) for line in self.out.splitlines()]


Kdi = Callable[..., Answer]
"""Takes the words after `kdi`."""


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *first: str) -> Kdi:
    """Runs commands that all begin with the words ``first``."""

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["kdi", *first, *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


def assert_wrong_usage(answer: Answer, said: str) -> None:
    """The command named what was typed wrong, and did nothing."""
    assert answer.code == 2
    assert said in re.sub(r"[\s│]+", " ", answer.err)
    assert answer.out == "" and "starting Spark" not in answer.err
