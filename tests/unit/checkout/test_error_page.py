"""The index of errors has every error as the code has it."""

from __future__ import annotations

import re

from kdi_assets.streams.drain.plan_errors import BrokerEndBelowPosition
from tests.pages.error_page import PAGE, errors, updated


def test_the_page_has_what_the_code_says() -> None:
    page = PAGE.read_text()

    assert page == updated(page), "run: make errors"


def test_every_error_has_one_line_with_a_reason_and_a_command() -> None:
    lines = re.findall(r"^\| `(\w+)` \| (Transient|Terminal) \| (\S.+) \| (\S.+) \|$", PAGE.read_text(), re.MULTILINE)

    assert sorted(name for name, *_ in lines) == sorted(error.__name__ for error in errors())


def test_a_command_has_the_names_of_fields_in_the_place_of_values() -> None:
    line = next(line for line in PAGE.read_text().splitlines() if f"`{BrokerEndBelowPosition.__name__}`" in line)

    assert "| `kdi resolve {stream} rewind --topic-partition {topic_partition} --to {end}` (rows of" in line
