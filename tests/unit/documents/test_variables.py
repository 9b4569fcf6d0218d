"""Fields that differ by environment name a variable, as Dagster's users write it; all others stay as written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jsonschema_rs
import pytest

from kdi_assets.documents.loading import validation
from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_folder, load_streams
from kdi_assets.documents.loading.validation import json_schema
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.limits import DrainWhen
from kdi_assets.documents.model.served_table import DuckDb
from kdi_assets.documents.model.stream import Stream
from tests.documents import SERVED, stream, written

BROKERS = 'type: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: "%s"}\n'


def set_all(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_the_file_of_a_served_table_comes_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"KDI_T_FILES": "/srv/staging"})
    file = "'{{ env.KDI_T_FILES }}/usage.duckdb'"
    served = SERVED.replace("x.duckdb", file)

    (loaded,) = load_folder(
        written(tmp_path, kafka=BROKERS % "b:1", a=stream("made/elsewhere"), s=served)
    ).served.values()

    assert isinstance(loaded.into, DuckDb)
    assert loaded.into.file == "/srv/staging/usage.duckdb"


@pytest.mark.parametrize(
    ("field", "brokers"),
    [
        ("{{ env.KDI_T_BROKERS }}", "b-1:9092,b-2:9092"),
        ("{{env('KDI_T_BROKERS')}}", "b-1:9092,b-2:9092"),
        ("{{ env('KDI_T_BROKERS', 'localhost:9092') }}", "b-1:9092,b-2:9092"),
        ("{{ env('KDI_T_UNSET', 'localhost:9092') }}", "localhost:9092"),
        ("{{ env.KDI_T_HOST }}:9093", "b-3:9093"),
    ],
)
def test_brokers_come_from_a_variable_or_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, brokers: str
) -> None:
    set_all(monkeypatch, {"KDI_T_BROKERS": "b-1:9092,b-2:9092", "KDI_T_HOST": "b-3"})

    (loaded,) = load_streams(written(tmp_path, kafka=BROKERS % field, a=stream("a"))).values()

    assert loaded.kafka.bootstrap_servers == brokers


@pytest.mark.parametrize(
    ("limit", "value", "drain_when"),
    [
        ("backlog_messages", "500", DrainWhen(backlog_messages=500)),
        ("lag_seconds", "2.5", DrainWhen(lag_seconds=2.5)),
        ("lag_seconds", "null", DrainWhen(lag_seconds=None)),
        ("cron", "*/5 * * * *", DrainWhen(backlog_messages=None, lag_seconds=None, cron="*/5 * * * *")),
        ("cron", "", DrainWhen()),
        ("min_gap_seconds", "30", DrainWhen(min_gap_seconds=30)),
    ],
)
def test_the_limits_of_a_run_come_from_variables_as_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: str, drain_when: DrainWhen
) -> None:
    monkeypatch.setenv("KDI_T_LIMIT", value)
    more = f', drain_when: {{{limit}: "{{{{ env.KDI_T_LIMIT }}}}"}}'

    (loaded,) = load_streams(written(tmp_path, kafka=BROKERS % "b:1", a=stream("a", more=more))).values()

    assert loaded.drain_when == drain_when


def test_start_and_the_cron_of_a_refined_table_come_from_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, {"KDI_T_START": "latest", "KDI_T_CRON": ""})
    refined = (
        "type: kdi_assets.components.RefinedTable\n"
        'attributes: {table: silver/a, from: bronze/a, cron: "{{ env.KDI_T_CRON }}"}\n'
    )
    own = stream("bronze/a", more=", start: \"{{ env('KDI_T_START', 'earliest') }}\"")

    loaded = load_folder(written(tmp_path, kafka=BROKERS % "b:1", a=own, s=refined))

    assert loaded.streams["bronze/a"].start == "latest"
    assert loaded.refined["silver/a"].cron is None


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        (
            'start: "{{ env.KDI_T_UNSET }}"',
            "start: the environment variable KDI_T_UNSET is not set; "
            "set it, or write {{ env('KDI_T_UNSET', 'default') }}",
        ),
        (
            'drain_when: {cron: "{{ env.KDI_T_UNSET }}"}',
            "drain_when.cron: the environment variable KDI_T_UNSET is not set; set it, or write",
        ),
        (
            'drain_when: {lag_seconds: "{{ env.KDI_T_WORD }}"}',
            "drain_when.lag_seconds: takes a number, not 'soon'; e.g. 60",
        ),
        (
            'start: "{{ env.KDI_T_WORD | upper }}"',
            "start: '{{ env.KDI_T_WORD | upper }}' does not name a variable; {{ env.NAME }}, or",
        ),
        (
            'filter: "{{ env.KDI_T_WORD }}"',
            "filter: takes no variable, and '{{ env.KDI_T_WORD }}' names one; "
            "write the value; the page environments.md",
        ),
        ('columns: {a: "{{ env.KDI_T_WORD }}"}', "columns.a: takes no variable"),
        ('description: "{{ env.KDI_T_WORD }}"', "description: takes no variable"),
    ],
)
def test_a_variable_that_is_missing_or_misplaced_is_a_mistake_with_file_line_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, mistake: str
) -> None:
    monkeypatch.setenv("KDI_T_WORD", "soon")
    documents = written(tmp_path, kafka=BROKERS % "b:1", a=stream("a", more=f", {more}"))

    with pytest.raises(Mistakes) as refused:
        load_streams(documents)

    (only,) = refused.value.mistakes
    assert (only.file, only.line) == (str(tmp_path / "a" / "defs.yaml"), 2)
    assert f"{only.field}: {only.message}; {only.right}".startswith(mistake)


@pytest.fixture
def no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for the JSON Schema of documents fails."""
    monkeypatch.delattr(validation, "json_schema")


@pytest.mark.usefixtures("no_schema")
def test_documents_without_variables_are_read_without_their_json_schema(tmp_path: Path) -> None:
    """To make it takes as long as to read hundreds of documents."""
    assert load_streams(written(tmp_path, kafka=BROKERS % "b-1:9092", a=stream("a"))).keys() == {"a"}


def test_spark_sql_with_braces_reaches_the_engine_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_T_WORD", "soon")
    more = ", filter: \"name <> '{{ env.KDI_T_WORD }}'\""

    (loaded,) = load_streams(written(tmp_path, kafka=BROKERS % "b:1", a=stream("a", more=more))).values()

    assert loaded.filter == "name <> '{{ env.KDI_T_WORD }}'"


def test_the_json_schema_takes_a_variable_where_the_loader_does() -> None:
    """`dg check yaml` and editors use it."""
    topic = {"topic": "t", "table": "a", "schema": "id bigint", "date": "current_date()"}
    shards = {"stream_name": "s", "connection": "main", "table": "a", "schema": "id bigint", "date": "current_date()"}
    variable = "{{ env.KDI_T_LIMIT }}"
    of_topic, of_shards = (jsonschema_rs.validator_for(json_schema(of)) for of in (Stream, KinesisStream))

    limits = {name: variable for name in ("backlog_messages", "lag_seconds", "cron", "min_gap_seconds")}
    assert of_topic.is_valid({**topic, "drain_when": limits, "start": variable})
    assert not of_topic.is_valid({**topic, "drain_when": {"backlog_messages": "many"}})
    assert of_shards.is_valid({**shards, "consumer": {"mode": variable}})
    assert not of_shards.is_valid({**shards, "consumer": {"mode": "pushed"}})
