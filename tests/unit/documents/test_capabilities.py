"""What each kind of table can do: every cell is filled, the page has it, and the commands are real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from kdi_assets.cli.app import app_for
from kdi_assets.documents.model.capabilities import CAPABILITIES, KINDS, Has, Lacks, TableKind
from tests.documents import refined, stream, written
from tests.pages.capability_page import PAGE, updated
from tests.typed import Kdi

TABLES = {
    TableKind.STREAM: "bronze/orders",
    TableKind.REFINED: "silver/orders",
    TableKind.SERVED: "duckdb/orders_now",
    TableKind.ANNOUNCED: "bronze/announced",
}
COPY = """type: kdi_assets.components.ServedTable
attributes: {table: silver/orders, keys: [id], into: {duckdb: {file: x.duckdb, table: orders_now}}}
"""
CHEAP = ("status", "freshness", "plan", "history", "refine", "serve", "upkeep")
"""Commands that need no JVM over tables that do not exist."""


def words(command: str, kind: TableKind) -> list[str]:
    """The words after `kdi`, with the name of a table of the kind."""
    table = {"TABLE": TABLES[kind], "STREAM": TABLES[TableKind.STREAM], "DATE": "2026-01-31"}
    first, *others = command.split()
    assert first == "kdi"
    return [table.get(word, word) for word in others]


COMMANDS = {
    (row.name, kind): words(cell.command, kind)
    for row in CAPABILITIES
    for kind in KINDS
    if isinstance(cell := row.of(kind), Has) and cell.command
}


@pytest.fixture(autouse=True)
def _a_table_of_each_kind(kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table exists, and nobody asks the broker of a retired stream."""
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    orders = stream("bronze/orders", more=", status: retired")
    more = ", status: retired, announce: {topic: files}"
    announced = stream("bronze/announced", more=more).replace("topic: t,", "topic: announced,")
    written(
        tmp_path,
        orders=orders,
        announced=announced,
        copy=COPY,
        silver=refined("silver/orders", upstream="bronze/orders"),
    )


def test_the_page_has_what_the_code_says() -> None:
    page = PAGE.read_text()

    assert page == updated(page), "run: make capabilities"


def test_every_kind_has_an_answer_to_every_question() -> None:
    for row in CAPABILITIES:
        for kind in KINDS:
            cell = row.of(kind)
            said = cell.by if isinstance(cell, Has) else cell.why
            assert len(said.split()) > 0 and said[-1] != ".", f"{row.name} of {kind}"
            assert isinstance(cell, Has) or len(said.split()) > 3, f"{row.name} of {kind}: no reason is given"
    assert set(KINDS) == set(TableKind)
    assert len({row.name for row in CAPABILITIES}) == len(CAPABILITIES)


@pytest.mark.parametrize(("row", "kind"), COMMANDS)
def test_every_command_that_a_cell_names_can_be_typed(row: str, kind: TableKind) -> None:
    command: Any = get_command(app_for(()))
    context, arguments = command.context_class(command), list(COMMANDS[row, kind])

    while hasattr(command, "commands"):
        name = arguments.pop(0)
        command = command.commands[name]
    typed = command.make_context(name, list(arguments), parent=context)  # refuses what cannot be typed

    assert typed.command.name == name
    values = [
        value for found in typed.params.values() for value in (found if isinstance(found, list | tuple) else [found])
    ]
    read = {str(value).removesuffix(" 00:00:00+00:00") for value in values}
    assert not {word for word in arguments if not word.startswith("-")} - read


@pytest.mark.parametrize(
    ("row", "kind"),
    [at for at, typed in COMMANDS.items() if typed[0] in CHEAP and at[1] in (TableKind.REFINED, TableKind.SERVED)],
)
def test_the_command_takes_a_table_of_the_kind(kdi: Kdi, row: str, kind: TableKind) -> None:
    answer = kdi(*COMMANDS[row, kind])

    assert answer.code != 2, answer.err
    assert TABLES[kind] in answer.out + answer.err
    assert "starting Spark" not in answer.err


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (row, kind)
        for row, command in sorted({(row, typed[0]) for (row, _), typed in COMMANDS.items()})
        for kind in KINDS
        if command in CHEAP
        and kind != TableKind.ANNOUNCED  # its table is a stream's, which the command takes
        and isinstance(next(r for r in CAPABILITIES if r.name == row).of(kind), Lacks)
    ],
)
def test_a_command_refuses_a_table_of_a_kind_that_lacks_it(kdi: Kdi, row: str, kind: TableKind) -> None:
    command = COMMANDS[row, TableKind.STREAM][0]

    answer = kdi(command, TABLES[kind])

    assert answer.code == 2, answer.out
