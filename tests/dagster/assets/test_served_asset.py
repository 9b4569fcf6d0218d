"""Served tables in Dagster and on the command line: documents, the asset, its condition, its events."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from kdi_assets.cli.app import app_for
from kdi_assets.components.served_asset import served_asset
from kdi_assets.definitions import component_definitions
from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.loading.served_documents import select_served
from kdi_assets.documents.model.served_table import DuckDb, Postgres, ServedTableSpec
from kdi_assets.errors import Transient
from kdi_assets.follow.serve.errors import DatabaseUnavailable, KeysNotUnique
from kdi_assets.follow.serve.postgres.connection import Database
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.downstream import downstream_sensors
from tests.driven import Once

DOCUMENT = """type: kdi_assets.components.ServedTable
attributes:
  table: gold/daily_usage
  into:
    postgres: {schema: analytics, table: daily_usage, url: {env: SERVING_URL}, password: {env: SERVING_PASSWORD}}
  keys: [date, host]
"""
FILE = """---
type: kdi_assets.components.ServedTable
attributes: {table: gold/daily_usage, into: {duckdb: {file: usage.duckdb, table: daily_usage}}, keys: [date, host]}
"""
SERVED = ServedTableSpec(table="gold/daily_usage", into=Postgres(table="daily_usage"), keys=("date", "host"))


def _write(folder: Path, text: str) -> Path:
    folder.joinpath("usage").mkdir(parents=True, exist_ok=True)
    folder.joinpath("usage", "defs.yaml").write_text(text)
    return folder


def test_documents_become_assets_below_their_delta_table(defs: Path) -> None:
    spark = dg.Definitions(resources={"spark": SparkResource()})
    location = dg.Definitions.merge(component_definitions(_write(defs, DOCUMENT + FILE)), spark)

    graph = location.resolve_asset_graph()

    keys = {key.path[0]: key for key in graph.executable_asset_keys}
    assert set(keys) == {"postgres", "duckdb"}
    assert keys["postgres"] == dg.AssetKey(["postgres", "analytics", "daily_usage"])
    for key in keys.values():
        assert graph.get(key).parent_keys == {dg.AssetKey(["gold", "daily_usage"])}
        assert graph.get(key).partitions_def is None
    assert downstream_sensors(location) == [], "the follow sensor requests them"


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        ("into: {postgres: {table: Daily}}", "into.postgres.table", "is not a name for this in a database"),
        (
            "into: {postgres: {table: x, url: 'postgresql://a:sesame-open@h/d'}}",
            "into.postgres.url",
            "holds a password",
        ),
        ("into: {postgres: {table: x, url: 'mysql://h/d'}}", "into.postgres.url", "not the URL of a PostgreSQL"),
        (
            "into: {postgres: {table: x, password: sesame-open}}",
            "into.postgres.password",
            "is a secret, which belongs in no document",
        ),
        ("into: {mysql: {table: x}}", "into", "takes one of postgres, duckdb"),
        ("into: {postgres: {table: x}}\n  columns: [host]", "columns", "lacks the key date"),
        ("into: {postgres: {table: x}}\n  cron: often", "cron", "is not a cron expression"),
    ],
)
def test_a_wrong_document_is_refused_with_its_line_and_shows_no_password(
    defs: Path, written: str, field: str, message: str
) -> None:
    text = f"type: kdi_assets.components.ServedTable\nattributes:\n  table: gold/x\n  keys: [date, host]\n  {written}\n"

    with pytest.raises(Mistakes) as refused:
        load_folder(_write(defs, text))

    (mistake,) = refused.value.mistakes
    assert (mistake.field, message in mistake.message) == (field, True), mistake
    assert "sesame-open" not in str(refused.value)


def test_two_documents_cannot_serve_the_same_table(defs: Path) -> None:
    with pytest.raises(Mistakes, match="is served by the document at .*:4 already"):
        load_folder(_write(defs, DOCUMENT + "---\n" + DOCUMENT))


def test_names_select_by_target_by_its_last_part_and_by_delta_table(defs: Path) -> None:
    tables = load_folder(_write(defs, DOCUMENT + FILE)).served

    assert [t.name for t in select_served(tables, ["postgres/analytics/daily_usage"])] == [
        "postgres/analytics/daily_usage"
    ]
    assert len(select_served(tables, ["gold/daily_usage", "duckdb/daily_usage"])) == 2


def _materialize(instance: dg.DagsterInstance, serve: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [served_asset(SERVED, serve=serve)],
        instance=instance,
        resources={"spark": SparkResource()},
        raise_on_error=False,
    )


def test_a_materialization_has_the_counts_the_version_and_the_query() -> None:
    report = ServeReport("postgres/public/daily_usage", "changes", 7, since=5, upserted=30, deleted=2, sql="TABLE x;")

    with dg.DagsterInstance.ephemeral() as instance:
        result = _materialize(instance, lambda served, **options: report)

        assert result.success
        (event,) = result.asset_materializations_for_node("postgres__public__daily_usage")
    values = {name: value.value for name, value in event.metadata.items()}
    assert (values["rows_upserted"], values["rows_deleted"], values["delta_version"]) == (30, 2, 7)
    assert "TABLE x;" in str(values["query"])
    assert event.tags is not None and event.tags["dagster/data_version"] == "7"


@pytest.mark.parametrize(
    ("refusal", "retries"),
    [
        (DatabaseUnavailable(target="t", server="s", detail="d"), True),
        (KeysNotUnique(target="t", keys=("a",), count=1, example="(1)"), False),
    ],
)
def test_a_refusal_fails_the_run_and_only_a_transient_one_is_retried(refusal: Exception, retries: bool) -> None:
    def refuse(served: ServedTableSpec, **options: Any) -> ServeReport:
        raise refusal

    with dg.DagsterInstance.ephemeral() as instance:
        result = _materialize(instance, refuse)

        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert not result.success
        assert (run.tags.get("dagster/retry_on_asset_or_op_failure") != "false") is retries


def test_a_password_is_in_no_representation_of_a_served_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdi_assets.follow.serve.postgres.connection import database_of

    monkeypatch.setenv("SERVING_URL", "postgresql://kdi@127.0.0.1:1/usage")
    monkeypatch.setenv("SERVING_PASSWORD", "sesame-open")
    from kdi_assets.documents.model.connections.client_values import FromEnvironment

    target = Postgres(table="x", url=FromEnvironment("SERVING_URL"), password=FromEnvironment("SERVING_PASSWORD"))

    database = database_of(target, home=Path())
    refused = database.error(None, 'connection to "127.0.0.1" failed for sesame-open')

    assert database.parameters["password"] == "sesame-open"
    shown = f"{database} {database.client} {database.server} {target} {refused}"
    assert "sesame-open" not in shown


@pytest.mark.parametrize(
    ("sqlstate", "message", "passes"),
    [
        (None, 'connection failed: FATAL:  role "kdi" does not exist', False),
        (None, 'connection failed: FATAL:  password authentication failed for user "kdi"', False),
        (None, 'connection failed: FATAL:  too many connections for role "kdi"', True),
        (None, "connection failed: FATAL:  canceling authentication due to timeout", True),
        (None, "connection failed: No such file or directory. Is the server running locally?", True),
        ("25006", "cannot execute INSERT in a read-only transaction", True),
        ("42501", "permission denied for table numbers", False),
    ],
)
def test_a_failure_of_the_database_is_transient_if_it_passes(sqlstate: str | None, message: str, passes: bool) -> None:
    assert isinstance(Database("postgres/x", {}).error(sqlstate, message), Transient) is passes


@pytest.mark.parametrize(
    ("sqlstate", "mend"),
    [
        ("42501", "grant what"),
        ("28P01", "grant what"),
        ("23505", "drop the constraint"),
        ("42P01", "mend what it names"),
    ],
)
def test_the_advice_fits_what_the_database_refused(sqlstate: str, mend: str) -> None:
    assert mend in Database("postgres/x", {}).error(sqlstate, "refused").message_parts()[2]


def test_an_address_that_is_none_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdi_assets.documents.model.connections.client_values import EnvironmentVariableMissing, FromEnvironment
    from kdi_assets.follow.serve.errors import AddressWrong
    from kdi_assets.follow.serve.postgres.connection import database_of

    target = Postgres(table="x", url=FromEnvironment("SERVING_URL"))
    monkeypatch.delenv("SERVING_URL", raising=False)
    with pytest.raises(EnvironmentVariableMissing, match="SERVING_URL"):
        database_of(target, home=Path())
    monkeypatch.setenv("SERVING_URL", "postgresql//u:sesame-open@h/d")

    with pytest.raises(AddressWrong) as refused:
        database_of(target, home=Path())

    assert "sesame-open" not in "".join(traceback.format_exception(refused.value))


def test_the_command_serves_a_file_and_status_shows_what_it_has(
    defs: Path, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    monkeypatch.setenv("KDI_LAKE", lake)
    monkeypatch.setenv("KDI_HOME", str(tmp_path / "home"))
    Path(lake, "gold").mkdir(parents=True)
    _write(defs, FILE.removeprefix("---\n"))
    table = f"{lake}/gold/daily_usage"
    command = CliRunner()

    missing = command.invoke(app_for(()), ["serve", "--all", "--defs", str(defs)])
    write_deltalake(table, pa.table({"date": ["d"], "host": ["a"], "requests": [1]}))
    served = command.invoke(app_for(()), ["serve", "--all", "--json", "--defs", str(defs)])
    again = command.invoke(app_for(()), ["serve", "daily_usage", "--defs", str(defs)])
    write_deltalake(table, pa.table({"date": ["d"], "host": ["b"], "requests": [2]}), mode="append")
    status = command.invoke(app_for(()), ["status", "--json", "--defs", str(defs)])

    assert isinstance(missing.exception, SystemExit) and missing.exit_code == 75
    assert json.loads(served.stdout)["rows_upserted"] == 1
    assert "nothing changed; it has v0" in again.stdout
    shown = json.loads(status.stdout.splitlines()[-1])
    assert (shown["consumed_version"], shown["newest_version"], shown["versions_behind"]) == (0, 1, 1)


def test_duckdb_has_the_rows_of_one_version_and_refuses_what_is_not_its_own(lake: str, tmp_path: Path) -> None:
    """Pass: newer versions replace all rows; wrong keys leave the old rows; a lock is Transient; other tables stay."""
    import duckdb
    import pyarrow as pa
    from deltalake import write_deltalake

    from kdi_assets.follow.serve.errors import FileLocked, FileNotOurs, NullServedKeys, TableNotOurs
    from kdi_assets.follow.serve.serve import serve

    Path(lake, "gold").mkdir(parents=True)
    file = tmp_path / "a.duckdb"
    served = ServedTableSpec(table="gold/x", into=DuckDb(file=str(file), table="x"), keys=("id",))

    def no_session() -> Any:
        raise AssertionError("no Spark is needed")

    def run(of: ServedTableSpec = served) -> ServeReport:
        return serve(of, lake=lake, session=no_session, home=tmp_path)

    def rows(table: str = "x") -> list[Any]:
        with duckdb.connect(str(file), read_only=True) as connection:
            return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()

    write_deltalake(f"{lake}/gold/x", pa.table({"id": [1, 2], "text": ["a", None]}))
    assert (run().kind, rows()) == ("load", [(1, "a"), (2, None)])
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [3], "text": ["c"]}), mode="overwrite")
    assert (run().upserted, rows()) == (1, [(3, "c")])
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [3, 3], "text": ["d", "e"]}), mode="append")
    with pytest.raises(KeysNotUnique, match=r"1 keys \(id\) .* \(3\)"):
        run()
    write_deltalake(f"{lake}/gold/x", pa.table({"id": pa.array([None], pa.int64()), "text": ["d"]}), mode="append")
    with pytest.raises(NullServedKeys, match="1 rows"):
        run()
    assert rows() == [(3, "c")]
    assert rows("kdi_served")[0][3] == 1

    with duckdb.connect(str(file)) as connection:
        connection.execute('CREATE TABLE "Theirs" AS SELECT 1 AS one')
    for name in ("Theirs", "theirs"):  # one table for DuckDB
        theirs = ServedTableSpec(table="gold/x", into=DuckDb(file=str(file), table=name), keys=("id",))
        with pytest.raises(TableNotOurs):
            run(theirs)
    tmp_path.joinpath("text.duckdb").write_text("no database " * 1000)
    with pytest.raises(FileNotOurs):
        run(ServedTableSpec(table="gold/x", into=DuckDb(file="text.duckdb", table="x"), keys=("id",)))
    assert rows("theirs") == [(1,)]
    assert FileLocked(target="t", file="f", detail="d").message_parts()[1].startswith("the file is unchanged")


@pytest.mark.parametrize("lacks", ["memory", "disk", "file"])
def test_a_duckdb_file_that_lacks_room_is_transient_and_keeps_its_rows(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Procedure: a limit of DuckDB's memory, of the size of files, a data file of the Delta table that is gone.
    Pass: a transient refusal; the file has its old rows and version; the next run replaces them.
    """
    import resource

    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from kdi_assets.follow.serve import duckdb_file
    from kdi_assets.follow.serve.errors import FileWriteFailed, ReadFailed
    from kdi_assets.follow.serve.serve import serve

    Path(lake, "gold").mkdir(parents=True)
    file, uri = tmp_path / "a.duckdb", f"{lake}/gold/x"
    served = ServedTableSpec(table="gold/x", into=DuckDb(file=str(file), table="x"), keys=("id",))

    def run() -> ServeReport:
        return serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path)

    def held() -> tuple[Any, ...]:
        with duckdb.connect(str(file), read_only=True) as connection:
            query = "SELECT (SELECT count(*) FROM x), version FROM kdi_served"
            return connection.execute(query).fetchall()[0]

    write_deltalake(uri, pa.table({"id": [1], "text": ["a"]}))
    run()
    numbers = range(2, 300_002)
    write_deltalake(uri, pa.table({"id": numbers, "text": [f"{n:x}-{n * 7919:x}" * 3 for n in numbers]}), mode="append")
    write_deltalake(uri, pa.table({"id": [300_002], "text": ["z"]}), mode="append")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    moved = tmp_path / "moved.parquet"
    (newest, *_) = (Path(f) for f in DeltaTable(uri).file_uris())

    with monkeypatch.context() as lacking, pytest.raises(ReadFailed if lacks == "file" else FileWriteFailed):
        if lacks == "memory":
            lacking.setattr(duckdb_file, "MEMORY", "2MB")
        elif lacks == "file":
            newest.rename(moved)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
        try:
            run()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert held() == (1, 0)
    if lacks == "file":
        moved.rename(newest)
    run()
    assert held() == (300_002, 2)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_duckdb_file_that_another_process_has_open_is_transient(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    import subprocess
    import sys

    import pyarrow as pa
    from deltalake import write_deltalake

    from kdi_assets.follow.serve import duckdb_file
    from kdi_assets.follow.serve.errors import FileLocked
    from kdi_assets.follow.serve.serve import serve

    Path(lake, "gold").mkdir(parents=True)
    file = tmp_path / "a.duckdb"
    served = ServedTableSpec(table="gold/x", into=DuckDb(file=str(file), table="x"), keys=("id",))
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [1]}))
    serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path)
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [2]}), mode="append")
    monkeypatch.setattr(duckdb_file, "LOCK_SECONDS", 0.2)
    connect = f"duckdb.connect({str(file)!r}, read_only={read_only})"
    opens = f"import duckdb; kept = {connect}; print('open', flush=True); input()"

    with subprocess.Popen([sys.executable, "-c", opens], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as analyst:
        assert analyst.stdout is not None and analyst.stdout.readline() == b"open\n"
        with pytest.raises(FileLocked):
            serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path)
        analyst.communicate(b"\n")
    done = serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path)

    assert done.upserted == 2


@pytest.mark.parametrize("point", ["planned", "publishing"])
def test_of_two_runs_of_one_process_that_replace_a_duckdb_table_one_is_told_of_the_other(
    lake: str, tmp_path: Path, point: str
) -> None:
    """Procedure: a second run begins while the first has read what the file has, or has replaced the rows uncommitted.
    Pass: one of them says that another one is active; the file has the rows of the newest version.
    """
    import pyarrow as pa
    from deltalake import write_deltalake

    from kdi_assets.follow.serve.duckdb_file import read_consumed_of_file
    from kdi_assets.follow.serve.errors import AnotherServeRunActive
    from kdi_assets.follow.serve.serve import serve

    Path(lake, "gold").mkdir(parents=True)
    served = ServedTableSpec(table="gold/x", into=DuckDb(file="a.duckdb", table="x"), keys=("id",))

    def run(at: Callable[[str], None] = lambda point: None) -> ServeReport:
        return serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path, at=at)

    write_deltalake(f"{lake}/gold/x", pa.table({"id": [1]}))
    run()
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [2]}), mode="append")

    with pytest.raises(AnotherServeRunActive):
        run(at=Once(point, run))
    run()

    assert isinstance(served.into, DuckDb)
    consumed, _ = read_consumed_of_file(served, served.into, tmp_path)
    assert consumed and consumed.version == 1


def test_a_table_that_delta_rs_cannot_read_is_refused_with_the_way_out(lake: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from kdi_assets.follow.serve.errors import FeaturesNotRead
    from kdi_assets.follow.serve.serve import serve

    Path(lake, "gold").mkdir(parents=True)
    served = ServedTableSpec(table="gold/x", into=DuckDb(file=str(tmp_path / "a.duckdb"), table="x"), keys=("id",))
    write_deltalake(f"{lake}/gold/x", pa.table({"id": [1]}))
    version = DeltaTable(f"{lake}/gold/x").version() + 1
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    Path(lake, f"gold/x/_delta_log/{version:020}.json").write_text(json.dumps(protocol))

    with pytest.raises(FeaturesNotRead, match="(?s)TypeWidening.*PostgreSQL"):
        serve(served, lake=lake, session=lambda: pytest.fail("no Spark is needed"), home=tmp_path)
