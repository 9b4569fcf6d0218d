"""The generated part of ``docs/kinds-of-tables.md``; ``python -m tests.pages.capability_page`` writes it."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.documents.model.capabilities import CAPABILITIES, KINDS, Has, Lacks

PAGE = Path(__file__).parents[2] / "docs" / "kinds-of-tables.md"
BEGIN, END = "<!-- what each kind of table can do: written by `make capabilities` -->", "<!-- by hand -->"


def updated(page: str) -> str:
    """The page with the table as the code has it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{_table()}\n{END}{after}"


def _table() -> str:
    head = ["", *KINDS.values()]
    rows = [[f"**{row.name}**: {row.question}", *(_cell(row.of(kind)) for kind in KINDS)] for row in CAPABILITIES]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def _cell(cell: Has | Lacks) -> str:
    if isinstance(cell, Lacks):
        return f"**no**: {cell.why}"
    more = f" ([more]({cell.page}))" if cell.page else ""
    return (f"`{cell.command}`: {cell.by}" if cell.command else cell.by) + more


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
