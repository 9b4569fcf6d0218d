"""The generated part of ``docs/kinds-of-tables.md``; ``python -m tests.capability_page`` writes it."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.stream.capabilities import capability_table

PAGE = Path(__file__).parent.parent / "docs" / "kinds-of-tables.md"
BEGIN, END = "<!-- what each kind of table can do: written by `make capabilities` -->", "<!-- by hand -->"


def updated(page: str) -> str:
    """The page with the table as the code has it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{capability_table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
