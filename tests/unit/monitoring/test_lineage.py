"""The OpenLineage events of runs, received over HTTP, of a handwritten table."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.documents.model.connections.client_values import FromEnvironment
from kdi_assets.documents.model.message_rules import Explode, FieldUse, Mask
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.served_table import DuckDb, Postgres, ServedTableSpec
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.follow.listeners import lineage
from kdi_assets.follow.listeners.column_lineage import InputFields, column_lineage
from kdi_assets.follow.listeners.heard import FollowerWrite
from kdi_assets.follow.listeners.listening import listening
from kdi_assets.follow.refine.errors import NoDates
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.refine.row_errors import QueryMistake
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.erase.downstream import Downstream, follow_erasure
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.errors import AnotherDrainActive
from kdi_assets.streams.drain.report import heard_by_listeners
from kdi_assets.streams.ledger.entry import DeadLettersAt, LedgerEntry, RangeCounts
from tests.receivers.lineage_receiver import LineageReceiver, receiving
from tests.table_by_hand import TP, TableByHand, orders

TODAY = date(2026, 5, 4)
DRAINED = LedgerEntry(
    1,
    "drain",
    "orders",
    "a",
    "orders",
    "t",
    "t",
    {TP: 100},
    ranges=(RangeCounts(OffsetRange(TP, 0, 100), became_rows=96, dead_letters=4),),
    rows_by_date={TODAY: 96},
    bytes=900,
    message_bytes=5000,
    letters_by_date={TODAY: 4},
    dead_letters_at=DeadLettersAt("l", 7),
)
DAGSTER_RUN = "0b1e7a64-7b3c-4a0e-9a4b-0d6a5b0a3b11"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageReceiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        monkeypatch.setattr(lineage, "WAIT_SECONDS", 60.0)  # the first import takes seconds on a busy machine
        yield receiver


@pytest.fixture
def table(tmp_path: Path) -> TableByHand:
    table = TableByHand(tmp_path)
    TableByHand(tmp_path / "letters")
    (tmp_path / "letters/bronze/orders").rename(tmp_path / "bronze/orders_dead_letters")
    return table


def no_spark() -> Any:
    raise ConnectionError("no Spark here")


def test_a_drain_is_a_run_that_reads_a_topic_and_writes_a_table_and_dead_letters(
    receiver: LineageReceiver, table: TableByHand, tmp_path: Path
) -> None:
    with heard_by_listeners("drain", orders(), str(tmp_path), no_spark, run_id=DAGSTER_RUN) as heard:
        heard(DRAINED)

    start, complete = receiver.events
    assert receiver.states() == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"] and UUID(start["run"]["runId"])
    assert complete["job"]["namespace"] == "kdi" and complete["job"]["name"] == "bronze/orders.drain"
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == DAGSTER_RUN
    assert datetime.fromisoformat(start["eventTime"]) <= datetime.fromisoformat(complete["eventTime"])
    (topic,) = complete["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://127.0.0.1:1", "orders")
    assert _of(topic["inputFacets"]["inputStatistics"]) == {"rowCount": 100, "size": 5000}
    rows, letters = complete["outputs"]
    assert (rows["namespace"], rows["name"]) == ("file", f"{tmp_path}/bronze/orders")
    assert _of(rows["outputFacets"]["outputStatistics"]) == {"rowCount": 96, "size": 900}
    assert rows["facets"]["version"]["datasetVersion"] == "1"
    fields = [(f["name"], f["type"]) for f in rows["facets"]["schema"]["fields"]]
    assert fields == [("id", "bigint"), ("date", "date")]
    assert letters["name"].endswith("bronze/orders_dead_letters")
    assert _of(letters["outputFacets"]["outputStatistics"]) == {"rowCount": 4}
    assert letters["facets"]["version"]["datasetVersion"] == "7"


def test_tags_of_columns_are_a_facet_of_the_table_that_is_written(receiver: LineageReceiver, tmp_path: Path) -> None:
    TableByHand(tmp_path, of_id={"kdi.tags": ["gdpr", "pii"]})
    with heard_by_listeners("drain", orders(), str(tmp_path), no_spark) as heard:
        heard(replace(DRAINED, dead_letters_at=None))

    (rows,) = receiver.events[1]["outputs"]
    tags = [tuple(tag[key] for key in ("key", "value", "source", "field")) for tag in rows["facets"]["tags"]["tags"]]
    assert tags == [("gdpr", "true", "KDI", "id"), ("pii", "true", "KDI", "id")]


def test_a_refused_drain_fails_its_run_with_the_text_of_the_refusal(
    receiver: LineageReceiver, table: TableByHand, tmp_path: Path
) -> None:
    with (
        pytest.raises(AnotherDrainActive),
        heard_by_listeners("drain", orders(), str(tmp_path), no_spark) as heard,
    ):
        heard(DRAINED)
        raise AnotherDrainActive(stream="bronze/orders", detail="commit 3 came first")

    assert receiver.states() == ["START", "FAIL"]
    failed = receiver.events[1]
    assert "commit 3 came first" in failed["run"]["facets"]["errorMessage"]["message"]
    assert _of(failed["outputs"][0]["outputFacets"]["outputStatistics"])["rowCount"] == 96, "its commits stand"


def test_an_interrupted_run_is_aborted(receiver: LineageReceiver, table: TableByHand, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), heard_by_listeners("replay", orders(), str(tmp_path), no_spark):
        raise KeyboardInterrupt

    assert receiver.states() == ["START", "ABORT"]
    assert receiver.events[1]["job"]["name"] == "bronze/orders.replay"


def test_a_receiver_that_refuses_is_a_warning_and_the_drain_goes_on(
    receiver: LineageReceiver,
    table: TableByHand,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver.status = 400
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url.replace("//", "//user:secret@"))

    with heard_by_listeners("drain", orders(), str(tmp_path), no_spark) as heard:
        heard(DRAINED)

    assert re.search("bronze/orders: OpenLineage has no complete events of this drain: .*400", _warning(caplog))
    assert "secret" not in _warning(caplog)


def test_a_receiver_that_is_silent_holds_the_end_of_a_run_for_a_limited_time(
    table: TableByHand, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "WAIT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")

        with heard_by_listeners("drain", orders(), str(tmp_path), no_spark) as heard:
            heard(DRAINED)

        assert "the receiver did not answer within 0.5 s" in _warning(caplog)


def test_without_openlineages_variables_nothing_is_imported_and_nothing_is_sent() -> None:
    script = (
        "import sys\n"
        "from kdi_assets.streams.drain.report import heard_by_listeners\n"
        "from tests.table_by_hand import orders\n"
        "with heard_by_listeners('drain', orders(), '/lake', None) as heard: heard(None)\n"
        "print([name for name in sys.modules if 'openlineage' in name or 'boto' in name or 'run_listener' in name])\n"
    )

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert (answer.stdout, answer.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("variables", "sends"),
    [
        ({}, False),
        ({"OPENLINEAGE_NAMESPACE": "prod"}, False),
        ({"OPENLINEAGE_URL": "http://marquez:5000"}, True),
        ({"OPENLINEAGE_CONFIG": "/etc/openlineage.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "kafka"}, True),
        ({"OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_DISABLED": "true"}, False),
    ],
)
def test_openlineages_own_variables_switch_it_on(variables: dict[str, str], sends: bool) -> None:
    assert Settings.from_environment(variables).lineage is sends


def test_columns_come_from_the_fields_that_the_document_names() -> None:
    stream = replace(
        orders(),
        date_expression="to_date(at)",
        columns={"host": "parse_url(url, 'HOST')", "paid.total": "item.price * rate", "when": "kafka.timestamp"},
        explode=Explode("item", "basket.items"),
        mask={"email": Mask("null")},
        mask_tagged={"pii": Mask("null")},
        fields={"_change_type": FieldUse("rename", "change")},
    )
    names = ("id", "change", "email", "host", "paid", "when", "item", "kafka", "date")
    columns: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    columns["phone"] = ("pii",)

    assert column_lineage(stream, columns, referenced=_names) == {
        "id": InputFields(("id",)),
        "change": InputFields(("_change_type",)),
        "email": InputFields(("email",), masked=True),
        "phone": InputFields(("phone",), masked=True),
        "host": InputFields(("url",), "parse_url(url, 'HOST')"),
        "paid": InputFields(("basket.items", "rate"), "item.price * rate"),
        "item": InputFields(("basket.items",), "basket.items"),
        "date": InputFields(("at",), "to_date(at)"),
    }


def _warning(caplog: pytest.LogCaptureFixture) -> str:
    """The sender's last warning; its HTTP client warns too, whenever it tries again."""
    warned = [record for record in caplog.records if record.name == lineage.__name__][-1]
    assert warned.levelname == "WARNING"
    return warned.getMessage()


def _names(sql: str) -> Collection[str]:
    """Names of an expression without strings that name a function, as Spark's parser finds them."""
    return set(re.findall(r"\b[a-z][\w.]*\b(?!\()", re.sub(r"'[^']*'", "", sql)))


def _of(facet: dict[str, Any]) -> dict[str, Any]:
    """A facet's own fields; every facet says who made it and which schema it has."""
    assert facet["_producer"] and facet["_schemaURL"].startswith("https://openlineage.io/spec/")
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_a_refinement_is_a_run_that_reads_its_upstream_tables_and_writes_its_table(
    receiver: LineageReceiver, table: TableByHand, tmp_path: Path
) -> None:
    silver = RefinedTableSpec(
        "bronze/orders", (Upstream("made/elsewhere"), Upstream("made/names"), Upstream("made/names", name="again"))
    )

    with listening("refine", silver, str(tmp_path), no_spark, run_id=DAGSTER_RUN) as heard:
        heard(FollowerWrite(version=1, rows=96))

    start, complete = receiver.events
    assert receiver.states() == ["START", "COMPLETE"]
    assert (complete["job"]["name"], start["job"]["name"]) == ("bronze/orders.refine", "bronze/orders.refine")
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == DAGSTER_RUN
    assert [i["name"] for i in complete["inputs"]] == [f"{tmp_path}/made/elsewhere", f"{tmp_path}/made/names"]
    (rows,) = complete["outputs"]
    assert (rows["namespace"], rows["name"]) == ("file", f"{tmp_path}/bronze/orders")
    assert _of(rows["outputFacets"]["outputStatistics"]) == {"rowCount": 96}
    assert rows["facets"]["version"]["datasetVersion"] == "1"


def test_a_refinement_that_is_refused_before_anything_is_planned_is_a_run_that_failed(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass: so is one by date of a table without dates, and one by a function that is not there."""
    (tmp_path / "functions_of_silver.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    upstreams, day = (Upstream("made/elsewhere"),), date(2026, 1, 1)
    dateless = RefinedTableSpec("silver/dateless", upstreams, partition_by=None)
    without = RefinedTableSpec("silver/without", upstreams, python="functions_of_silver.orders")

    with pytest.raises(NoDates):
        refine(dateless, lake=str(tmp_path), session=no_spark, dates=(day, day))
    with pytest.raises(QueryMistake):
        refine(without, lake=str(tmp_path), session=no_spark)

    assert receiver.states() == ["START", "FAIL"] * 2
    assert [event["job"]["name"] for event in receiver.events[::2]] == [
        "silver/dateless.refine",
        "silver/without.refine",
    ]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServedTableSpec:
    """A Delta table of three rows, to be served from a DuckDB file in ``KDI_HOME``."""
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    write_deltalake(f"{tmp_path}/gold/daily", pa.table({"id": [1, 2, 3]}))
    return ServedTableSpec("gold/daily", DuckDb("analysts.duckdb", "daily"), ("id",))


def test_a_run_of_a_served_table_reads_its_delta_table_and_writes_a_database(
    receiver: LineageReceiver, served: ServedTableSpec, tmp_path: Path
) -> None:
    serve(served, lake=str(tmp_path), session=no_spark, run_id=DAGSTER_RUN)
    serve(served, lake=str(tmp_path), session=no_spark)

    assert receiver.states() == ["START", "COMPLETE"] * 2
    complete, idle = receiver.events[1], receiver.events[3]
    assert complete["job"]["name"] == "duckdb/daily.serve"
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == DAGSTER_RUN
    (source,), (target,) = complete["inputs"], complete["outputs"]
    assert (source["namespace"], source["name"]) == ("file", f"{tmp_path}/gold/daily")
    assert source["facets"]["version"]["datasetVersion"] == "0"
    assert (target["namespace"], target["name"]) == (f"duckdb://{tmp_path}/analysts.duckdb", "analysts.main.daily")
    assert _of(target["outputFacets"]["outputStatistics"]) == {"rowCount": 3}
    assert idle["outputs"][0]["outputFacets"] == {}, "nothing was new"


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("postgresql://kdi@db.internal:6432/usage", "postgres://db.internal:6432", "usage.analytics.daily"),
        ("postgresql://kdi@one:5432,two:5433/usage", "postgres://one:5432", "usage.analytics.daily"),
        ("", "postgres://localhost:5432", "postgres.analytics.daily"),
    ],
)
def test_a_table_in_postgresql_has_the_name_that_openlineage_gives_it(
    receiver: LineageReceiver, tmp_path: Path, url: str, namespace: str, name: str
) -> None:
    served = ServedTableSpec("gold/daily", Postgres("daily", schema="analytics", url=url), ("id",))

    with listening("serve", served, str(tmp_path), no_spark) as heard:
        heard(FollowerWrite(version=4, rows=30))

    (target,) = receiver.events[1]["outputs"]
    assert (target["namespace"], target["name"]) == (namespace, name)


def test_an_address_that_is_none_is_a_warning_without_its_password(
    receiver: LineageReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_URL", "host=db sesame-open")
    served = ServedTableSpec("gold/daily", Postgres("daily", url=FromEnvironment("SERVING_URL")), ("id",))

    with listening("serve", served, str(tmp_path), no_spark):
        pass

    assert "postgres/public/daily: OpenLineage has no complete events of this serve" in _warning(caplog)
    assert "sesame" not in _warning(caplog)


def test_what_an_erasure_refines_and_serves_are_runs_too(
    receiver: LineageReceiver, served: ServedTableSpec, tmp_path: Path
) -> None:
    refused = RefinedTableSpec("silver/orders", (Upstream("made/elsewhere"),))
    downstream = Downstream((refused,), (served,))

    followed = list(follow_erasure(downstream, lake=str(tmp_path), session=no_spark, where="id = 1"))

    assert [table.error is None for table in followed] == [False, True]
    by_job = [(event["job"]["name"], event["eventType"]) for event in receiver.events]
    refine, published = "silver/orders.refine", "duckdb/daily.serve"
    assert by_job == [(refine, "START"), (refine, "FAIL"), (published, "START"), (published, "COMPLETE")]
    assert "made/elsewhere" in receiver.events[1]["run"]["facets"]["errorMessage"]["message"]
