"""Entries and bookmarks of refined tables: a format that this release does not know is refused, never misread."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.follow.refine.consumer import new_rows
from kdi_assets.follow.refine.entry import (
    FORMAT_OF_KEPT_DATES,
    RefineEntry,
    VersionRange,
    parse_refine_entry,
    refine_entry_to_json,
)
from kdi_assets.follow.refine.errors import BookmarksUnreadable, RefinedByNewerRelease
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.follow.refine.upstream_bookmarks import (
    bookmark_transactions,
    format_id,
    others_transactions,
    read_bookmarks,
)
from kdi_assets.operate.monitoring.refined_status import read_refined_status
from tests.refined import COPY

ENTRY = RefineEntry(
    COPY.name,
    "a",
    "dates",
    upstreams=(VersionRange("bronze/events", "u", 1, 2),),
    why="requested",
    dates=(date(2026, 1, 1),),
    rows_added=3,
    rows_removed=2,
    rows_by_date={date(2026, 1, 1): 3},
    removed_by_date={date(2026, 1, 1): 2},
    cpu_seconds=1.25,
    bytes_added=99,
    files_added=3,
    version=7,
)


def test_an_entry_is_read_as_it_was_written() -> None:
    assert parse_refine_entry(refine_entry_to_json(ENTRY), 7) == ENTRY


def test_an_entry_of_another_format_is_refused() -> None:
    written = json.loads(refine_entry_to_json(ENTRY)) | {"kdi_refine": FORMAT_OF_KEPT_DATES + 1}

    with pytest.raises(RefinedByNewerRelease, match=f"{COPY.name}: .* in the format {FORMAT_OF_KEPT_DATES + 1}"):
        parse_refine_entry(json.dumps(written), 7)


def test_bookmarks_of_another_format_stop_every_reader_of_them(tmp_path: Path) -> None:
    """A rebuild too: it would overwrite what the newer release relies on."""
    newer = {**bookmark_transactions(COPY.name, {"u": 1}, 0), format_id(COPY.name): FORMAT_OF_KEPT_DATES + 1}
    transactions = [Transaction(app_id, version) for app_id, version in newer.items()]
    for path, properties in (("bronze/events", None), (COPY.table, CommitProperties(app_transactions=transactions))):
        write_deltalake(tmp_path / path, pa.table({"id": [1]}), commit_properties=properties)
    upstream, output = f"{tmp_path}/bronze/events", f"{tmp_path}/{COPY.table}"

    for rebuild in (False, True):
        with pytest.raises(RefinedByNewerRelease):
            plan_refinement(COPY, str(tmp_path), rebuild=rebuild)
    with pytest.raises(RefinedByNewerRelease):
        new_rows(cast("Any", None), upstream=upstream, output=output, consumer=COPY.name)
    assert isinstance(read_refined_status(COPY, str(tmp_path)).refusal, RefinedByNewerRelease)


def test_a_hand_written_asset_whose_first_commit_a_restore_undid_is_told_how_to_get_its_rows_back(
    tmp_path: Path,
) -> None:
    """Procedure: two assets write one table; it is restored to before the first commit of the second one; then as the
    refusal says. `kdi refine --rebuild` knows no such asset.
    """
    upstream, output = f"{tmp_path}/bronze/events", f"{tmp_path}/silver/made"
    write_deltalake(upstream, pa.table({"id": [1]}))
    table_id = str(DeltaTable(upstream).metadata().id)
    for version, consumer in enumerate(("one", "two")):
        made = bookmark_transactions(consumer, {table_id: 0}, version)
        properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
        write_deltalake(output, pa.table({"id": [version]}), mode="append", commit_properties=properties)
    DeltaTable(output).restore(0)

    def new_in(consumer: str) -> object:
        return new_rows(cast("Any", None), upstream=upstream, output=output, consumer=consumer)

    with pytest.raises(BookmarksUnreadable, match="first commit of two, and the table was restored to it") as refused:
        new_in("two")
    assert new_in("one") is None
    assert refused.value.message_parts()[2].startswith(
        f"kdi sql 'RESTORE TABLE delta.`{output}` TO VERSION AS OF 1'   ("
    )
    DeltaTable(output).restore(1)
    assert (new_in("one"), new_in("two")) == (None, None)


def test_a_hand_written_asset_whose_table_has_a_damaged_commit_is_not_told_to_restore_it(tmp_path: Path) -> None:
    upstream, output = f"{tmp_path}/bronze/events", f"{tmp_path}/silver/made"
    write_deltalake(upstream, pa.table({"id": [1]}))
    made = bookmark_transactions("one", {str(DeltaTable(upstream).metadata().id): 0}, 0)
    properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
    write_deltalake(output, pa.table({"id": [1]}), commit_properties=properties)
    write_deltalake(output, pa.table({"id": [2]}), mode="append")
    DeltaTable(output).create_checkpoint()
    Path(output, "_delta_log", f"{1:020}.json").unlink()

    with pytest.raises(BookmarksUnreadable, match="commit 1 ") as refused:
        new_rows(cast("Any", None), upstream=upstream, output=output, consumer="one")

    assert refused.value.message_parts()[2].startswith("dagster asset materialize   (the same asset again, once ")


def test_a_commit_of_one_asset_sets_the_bookmarks_of_the_others_again(tmp_path: Path) -> None:
    """Purpose: an asset that is idle for longer than the log reaches back would not know what its rows come from.
    Procedure: the second asset commits, the first one in between and twice after it; commits but the last leave.
    Pass: nothing is new for the second; its bookmark is that of a version that is also one of the table.
    """
    upstream, output = f"{tmp_path}/bronze/events", f"{tmp_path}/silver/made"
    for _ in range(2):
        write_deltalake(upstream, pa.table({"id": [1]}), mode="append")
    table_id = str(DeltaTable(upstream).metadata().id)
    names = frozenset[str]()
    for version, consumer in enumerate(("one", "two", "one", "one")):
        made = bookmark_transactions(consumer, {table_id: 1}, version)
        if version:
            log = TableLog.existing(output)
            made = {**others_transactions(log, names, consumer, version), **made}
        names |= set(made)
        properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
        write_deltalake(output, pa.table({"id": [version]}), mode="append", commit_properties=properties)
    DeltaTable(output).create_checkpoint()
    for version in range(3):
        Path(output, "_delta_log", f"{version:020}.json").unlink()

    bookmarks = read_bookmarks(TableLog.existing(output), "two", alone=False)

    assert (bookmarks.committed, bookmarks.consumed(table_id)) == (3, 1)
    assert new_rows(cast("Any", None), upstream=upstream, output=output, consumer="two") is None


def test_an_asset_whose_commits_have_left_the_log_costs_the_others_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: the log since then may be long, and each commit would read it."""
    output = f"{tmp_path}/silver/made"
    for version in range(6):
        made = bookmark_transactions("one" if version else "two", {"id": 1}, version)
        properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
        write_deltalake(output, pa.table({"id": [version]}), mode="append", commit_properties=properties)
    DeltaTable(output).create_checkpoint()
    Path(output, "_delta_log", f"{1:020}.json").unlink()
    log, read, actions = TableLog.existing(output), list[int](), TableLog.actions

    def counted(log: TableLog, version: int) -> Any:
        read.append(version)
        return actions(log, version)

    monkeypatch.setattr(TableLog, "actions", counted)

    assert others_transactions(log, set(bookmark_transactions("two", {"id": 1}, 0)), "one", 6) == {}
    assert read == [1]


@pytest.mark.parametrize(
    ("undone", "instead"),
    [(None, "move s3://lake/silver/t away, and"), (7, "RESTORE s3://lake/silver/t to version 7, its newest commit")],
)
def test_a_table_without_bookmarks_is_computed_again_and_the_error_names_the_way_out_if_rows_are_frozen(
    undone: int | None, instead: str
) -> None:
    """Purpose: the rebuild is refused then, because it is unknown whether frozen rows have the document's form."""
    unread = BookmarksUnreadable(table="silver/t", uri="s3://lake/silver/t", version=3, why="is gone", undone=undone)

    said = f"kdi refine silver/t --rebuild   (refused if rows are frozen: then first {instead}"
    assert unread.message_parts()[2].startswith(said)


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize(("physical_name", "kind"), [("id", "nothing"), ("col-2", "rebuild")])
def test_a_refined_table_whose_own_column_was_replaced_by_one_of_its_name_is_computed_again(
    tmp_path: Path, physical_name: str, kind: str, restored: bool
) -> None:
    """Procedure: another writer changes a property; or drops the column, which column mapping allows, and adds one of
    the same name and type, so that it is null in every row. Before that, the table may be restored to our commit.
    """
    upstream, output = tmp_path / "bronze/events", tmp_path / COPY.table
    write_deltalake(upstream, pa.table({"id": [1]}))
    made = bookmark_transactions(
        COPY.name, {str(DeltaTable(upstream).metadata().id): 0}, 0, definitions=[COPY.definition()]
    )
    properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
    row = pa.table({"id": [1], "date": [date(2026, 1, 1)]})
    write_deltalake(output, row, partition_by=["date"], commit_properties=properties)
    if restored:
        write_deltalake(output, row, mode="append")
        DeltaTable(output).restore(0)
    before = DeltaTable(output)
    columns = [
        {"name": name, "type": of_type, "nullable": True, "metadata": {f"delta.columnMapping.{k}": v for k, v in ids}}
        for name, of_type, ids in (
            ("id", "long", (("id", 3), ("physicalName", physical_name))),
            ("date", "date", (("id", 2), ("physicalName", "date"))),
        )
    ]
    described = {
        "id": str(before.metadata().id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": ["date"],
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    }
    altered = [{"commitInfo": {"operation": "ADD COLUMNS"}}, {"metaData": described}]
    altered += [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}]
    (output / "_delta_log" / f"{before.version() + 1:020}.json").write_text("\n".join(map(json.dumps, altered)))

    plan = plan_refinement(COPY, str(tmp_path))

    assert plan.kind == kind
    assert plan.why == ("its own column id was dropped, renamed or changed its type" if kind == "rebuild" else "")
