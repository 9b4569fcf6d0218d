"""Documents of refined tables: what they say, and every mistake with its file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import indent

import jsonschema_rs
import pytest

from kdi_assets.documents.loading.errors import AmbiguousStream, UnknownStream
from kdi_assets.documents.loading.loader import load_folder, select_refined, select_table
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.loading.validation import json_schema
from kdi_assets.documents.model.refined_modes import Aggregate, Append, Measure, ReplaceDates
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.downstream import dates_of
from kdi_assets.follow.refine.modes import aggregate
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, mistakes_of, refined, stream, written


def only_mistake(folder: Path, more: str) -> str:
    """The only mistake of a document with these attributes: field, message, and what would be right."""
    written(folder, silver=refined("silver/a", more=more))
    (mistake,) = mistakes_of(folder)
    place, _, said = mistake.partition(" ")
    assert place == "silver/defs.yaml:2"
    return said


def test_a_document_says_what_a_refined_table_is_made_of_and_how(tmp_path: Path) -> None:
    sums = "mode: {aggregate: {by: [date, host], measures: {n: count, bytes: {sum: size}}}}"
    written(
        tmp_path,
        bronze=CLUSTER + "---\n" + stream("bronze/web"),
        silver=refined("silver/a"),
        gold=refined("gold/b", upstream="[silver/a, {table: bronze/web, as: raw}]", more=", mode: replace_dates"),
        daily=refined("gold/daily", upstream="silver/a", more=f", {sums}"),
    )

    tables = load_folder(tmp_path).refined

    assert list(tables) == ["gold/b", "gold/daily", "silver/a"]
    assert (tables["silver/a"].mode, tables["silver/a"].upstreams) == (Append(), (Upstream("bronze/web"),))
    assert tables["gold/b"].upstreams == (Upstream("silver/a"), Upstream("bronze/web", "raw"))
    assert [u.view for u in tables["gold/b"].upstreams] == ["a", "raw"]
    assert isinstance(tables["gold/b"].mode, ReplaceDates)
    measures = {"n": Measure("count"), "bytes": Measure("sum", "size")}
    assert tables["gold/daily"].mode == Aggregate(("date", "host"), measures)


def test_sql_may_lie_in_a_file_beside_the_document(tmp_path: Path) -> None:
    written(tmp_path, silver=refined("silver/a", more=", sql_file: a.sql"))
    (tmp_path / "silver" / "a.sql").write_text("SELECT date FROM web\n")

    (table,) = load_folder(tmp_path).refined.values()

    assert table.sql == "SELECT date FROM web\n"
    assert table.definition() == RefinedTableSpec("silver/a", (Upstream("bronze/web"),), table.sql).definition()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (", sql_file: b.sql", "sql_file: {folder}/silver/b.sql: No such file or directory; a path from the folder of"),
        (", sql_file: empty.sql", "sql_file: {folder}/silver/empty.sql is empty; a file with Spark SQL"),
        (", sql: SELECT 1, sql_file: empty.sql", "sql_file: there is sql as well; keep one of sql and sql_file"),
        (", sql_file: a.sql, python: 'm:f'", "python: there is sql_file as well; keep one of sql_file and python"),
        (", sql: SELECT 1, python: 'm:f'", "python: there is sql as well; keep one of sql and python"),
        (", python: m.f", "python: 'm.f' is not the name of a function; module:function, e.g. "),
        (", mode: upsrt", "mode: 'upsrt' is not a mode; did you mean upsert?"),
        (", mode: {upsert: {}}", "mode.upsert.keys: is missing; e.g. keys: [customer_id]"),
        (
            ", mode: {aggregate: {by: [date], measures: {n: {total: a}}}}",
            "mode.aggregate.measures.n: {{'total': 'a'}} is",
        ),
        (
            ", mode: {upsert: {keys: [id], envelope: debezium}}",
            "partition_by: the rows of a Debezium envelope have no date; partition_by: null",
        ),
        (
            ", mode: {upsert: {keys: [id], envelope: tombstones, apply_as_deletes: gone}}",
            "mode: envelope tombstones says which changes delete; no apply_as_deletes",
        ),
        (
            ", python: 'm:f', mode: {upsert: {keys: [id], envelope: tombstones}}",
            "python: mode has an envelope, which is read by SQL; sql in place of python",
        ),
        (
            ", mode: {aggregate: {by: [host], measures: {n: count}}}",
            "partition_by: is date, and mode aggregate makes no column date; date in `by`, or partition_by: null",
        ),
        (
            ", mode: {upsert: {keys: [id], column_list: [name]}}",
            "partition_by: is date, and mode upsert makes no column date; date in `column_list`, or partition_by: null",
        ),
        (
            ", mode: {upsert: {keys: [id], column_list: [name], envelope: tombstones}}",
            "partition_by: is date, and mode upsert makes no column date; date in `column_list`, or partition_by: null",
        ),
        (
            ", mode: {aggregate: {by: [date, host], measures: {Host: count}}}",
            "mode.aggregate.measures: two columns are called host; a name of its own for each",
        ),
        (
            ", mode: {aggregate: {by: [date], measures: {ms: {avg: a}, ms_sum: {sum: a}}}}",
            "mode.aggregate.measures: two columns are called ms_sum (avg and approx_count_distinct keep more columns, "
            "e.g. ms_sum and ms_count of ms); a name of its own for each",
        ),
        (", modes: append", "modes: no such field; did you mean mode?"),
        (", cron: hourly", "cron: 'hourly' is not a cron expression; five fields"),
    ],
)
def test_a_mistake_names_its_field_and_what_would_be_right(tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "silver").mkdir()
    (tmp_path / "silver" / "empty.sql").write_text("\n")

    assert only_mistake(tmp_path, more).startswith(said.format(folder=tmp_path))


@pytest.mark.parametrize(
    "more",
    [
        ", partition_by: null, mode: {aggregate: {by: [host], measures: {n: count}}}",
        ", partition_by: null, mode: {upsert: {keys: [id], column_list: [name]}}",
        ", mode: {upsert: {keys: [id], column_list: [date, name]}}",
        ", mode: {upsert: {keys: [id]}}",
    ],
)
def test_a_mode_needs_a_date_only_for_partitions_by_date(tmp_path: Path, more: str) -> None:
    written(tmp_path, silver=refined("silver/a", more=more))

    assert list(load_folder(tmp_path).refined) == ["silver/a"]


def test_the_page_shows_modes_that_documents_may_have(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "refined-tables.md").read_text()
    modes = re.findall(r"^```yaml\n(mode:.*?)^```", page, re.MULTILINE | re.DOTALL)

    for n, text in enumerate(modes):
        first = f"type: kdi_assets.components.RefinedTable\nattributes:\n  table: silver/t{n}\n  from: bronze/web\n"
        written(tmp_path, **{f"t{n}": first + indent(text, "  ")})

    assert len(load_folder(tmp_path).refined) == len(modes) == 4


def test_only_replace_dates_reads_several_tables(tmp_path: Path) -> None:
    written(tmp_path, a=refined("gold/a", upstream="[x/a, x/b]"), b=refined("gold/b", upstream="[x/a, y/a]"))

    several, same_name = mistakes_of(tmp_path)

    assert several == (
        "a/defs.yaml:2 mode: reads several tables, whose rows do not arrive together; mode: replace_dates"
    )
    assert same_name == "b/defs.yaml:2 from: two tables are called a in SQL; name one of them: {table: …, as: NAME}"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("bronze/web", "bronze/web is already the table of "),
        ("bronze/web_dead_letters", "bronze/web_dead_letters is already kept for the table"),
        ("bronze/web/sub", "bronze/web/sub clashes with bronze/web, the table of "),
        ("silver/x_deletes", "silver/x_deletes is already kept for the table of "),
    ],
)
def test_a_refined_table_lies_in_no_other_tables_way(tmp_path: Path, table: str, said: str) -> None:
    written(
        tmp_path,
        a=CLUSTER + "---\n" + stream("bronze/web"),
        b=refined("silver/x"),
        c=refined(table, upstream="somewhere/else"),
    )

    (mistake,) = mistakes_of(tmp_path)

    assert mistake.startswith(f"c/defs.yaml:2 table: {said}")


def test_tables_that_are_made_of_each_other_are_a_mistake_and_each_circle_is_named_once(tmp_path: Path) -> None:
    written(
        tmp_path,
        a=refined("s/a", upstream="s/b"),
        b=refined("s/b", upstream="s/c"),
        c=refined("s/c", upstream="s/a"),
        alone=refined("s/alone"),
        self=refined("s/self", upstream="s/self"),
        below=refined("s/below", upstream="s/a"),
    )

    assert mistakes_of(tmp_path) == [
        "a/defs.yaml:2 from: is made of itself: s/a from s/b from s/c from s/a; tables that do not need this one",
        "self/defs.yaml:2 from: is made of itself: s/self from s/self; tables that do not need this one",
    ]


def test_a_table_that_needs_rows_of_other_dates_may_not_be_made_of_one_that_ends_its_rows(tmp_path: Path) -> None:
    """Purpose: it reads rows of all dates again when some change, and would lose what came of those that left.
    Procedure: tables in modes that are not by date; a join. One with a `keep` of its own alone is right.
    """
    newest = ", partition_by: null, mode: {upsert: {keys: [id], sequence_by: at}}"
    by_host = ", partition_by: null, mode: {aggregate: {by: [host], measures: {n: count}}}"
    written(
        tmp_path,
        a=CLUSTER + "---\n" + stream("bronze/web", more=", keep: 400 days"),
        silver=refined("s/silver", more=", keep: 30 days"),
        newest=refined("s/newest", more=newest),
        hosts=refined("g/hosts", upstream="s/silver", more=by_host),
        own=refined("s/own", upstream="bronze/other", more=newest + ", keep: 30 days"),
        joined=refined("g/joined", upstream="[s/newest, s/silver]", more=", mode: replace_dates"),
        ends=refined("g/ends", upstream="[s/newest, s/other]", more=", mode: replace_dates, keep: 30 days"),
    )
    right = "append, replace_dates, deduplicate, or aggregate by date, with partition_by: date"
    lacks = (
        "is not computed by date, and {}, of which it is made, has `keep`: it would lose rows; {}; or no `keep` there"
    )
    assert mistakes_of(tmp_path) == [
        "hosts/defs.yaml:2 mode: " + lacks.format("s/silver", right),
        "joined/defs.yaml:2 from: is made of several tables, and s/silver, of which it is made, has `keep`: it would "
        "lose rows; one table; or no `keep` there",
        "newest/defs.yaml:2 mode: " + lacks.format("bronze/web", right),
        f"own/defs.yaml:2 keep: is not computed by date, which `keep` needs; {right}",
    ]


def test_commands_find_a_refined_table_by_its_path_or_the_last_part(tmp_path: Path) -> None:
    streams = CLUSTER + "---\n" + stream("bronze/web")
    written(tmp_path, a=streams, b=refined("silver/web"), c=refined("silver/daily"), d=refined("gold/daily"))
    loaded = load_folder(tmp_path)

    assert [t.name for t in select_refined(loaded.refined, ["web", "silver/web"])] == ["silver/web"]
    assert select_table(loaded, "bronze/web") is loaded.streams["bronze/web"]
    with pytest.raises(AmbiguousStream, match="daily may be any of gold/daily, silver/daily"):
        select_refined(loaded.refined, ["daily"])
    assert select_table(loaded, "web") is loaded.streams["bronze/web"]
    assert select_table(loaded, "silver/web") is loaded.refined["silver/web"]
    with pytest.raises(UnknownStream, match="no refined table is called dayly: did you mean silver/daily"):
        select_refined(loaded.refined, ["dayly"])


def test_every_field_has_a_description_and_an_example_and_every_mode_a_line_in_the_documentation() -> None:
    schema = json_schema(RefinedTableSpec)
    page = (CHECKOUT / "docs" / "refined-tables.md").read_text()

    for described in (schema, *schema["$defs"].values()):
        fields = described.get("properties", {}).items()
        assert [name for name, said in fields if not (said.get("description") and said.get("examples"))] == []
    modes = re.findall(r"^\| `(\w+)` \|", page.partition("## Modes")[2], re.MULTILINE)
    assert set(modes) >= set(schema["$defs"]["WrittenMode"]["properties"])


def test_the_schema_that_dagster_shows_takes_what_documents_say() -> None:
    validator = jsonschema_rs.validator_for(json_schema(RefinedTableSpec))
    shortest = {"table": "silver/a", "from": "bronze/a"}
    sums = {"mode": {"aggregate": {"by": ["date"], "measures": {"n": "count", "b": {"sum": "b"}}}}}

    for attributes in (shortest, {**shortest, "mode": "append"}, {**shortest, **sums, "from": [{"table": "b/a"}]}):
        assert list(validator.iter_errors(attributes)) == []
    assert not validator.is_valid({**shortest, "form": "x"})


def test_the_examples_of_the_fields_make_a_right_document(tmp_path: Path) -> None:
    examples = {name: said["examples"][0] for name, said in json_schema(RefinedTableSpec)["properties"].items()}
    for other in ("sql_file", "python"):  # in place of sql
        del examples[other]
    document = {"type": "kdi_assets.components.RefinedTable", "attributes": examples}
    (tmp_path / "defs.yaml").write_text(json.dumps(document), encoding="utf-8")

    (table,) = load_folder(tmp_path).refined.values()

    assert (table.name, table.by_date) == ("silver/sessions", True)


def test_the_example_is_what_its_page_shows() -> None:
    folder = CHECKOUT / "examples" / "refined"
    page = (CHECKOUT / "docs" / "refined-tables.md").read_text()

    loaded = load_folder(folder)

    assert list(loaded.refined) == ["gold/busiest_hosts", "gold/daily_usage", "silver/sessions"]
    assert [t.name for t in upstream_first(loaded.refined.values())] == [
        "silver/sessions",
        "gold/daily_usage",
        "gold/busiest_hosts",
    ]
    assert (folder / "failures.py").read_text().partition('"""\n\n')[2] in page


def test_an_asset_can_have_the_dates_of_a_refined_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(CHECKOUT / "examples" / "refined"))

    assert dates_of("gold/daily_usage") == dates_of("bronze/web_requests")


def test_the_columns_of_a_measure_are_those_that_an_aggregate_makes() -> None:
    made = {function: [s for s in columns if s] for function, columns in aggregate._STATE.items()}

    assert {function: list(Measure(function).suffixes) for function in made} == made
