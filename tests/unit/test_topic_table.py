"""What the fields of a document mean, taken as written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from kdi_assets.components.cluster_fields import KafkaClusterFields
from kdi_assets.components.environment import EnvironmentVariableMissing
from kdi_assets.components.fields import TopicTableFields
from kdi_assets.components.mistakes import Mistakes
from kdi_assets.components.strict import Fields
from kdi_assets.stream import Checks, DateWindow, DrainWhen, FreshnessLimits, KafkaCluster, Stream
from tests.documents import only_mistake, only_stream, with_attribute

IN_FULL = """
type: kdi_assets.components.TopicTable
attributes:
  topic: web_requests
  cluster: main                         # the default
  table: bronze/web_requests            # lies at $KDI_LAKE/bronze/web_requests, dead letters at …_dead_letters
  schema: "meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int, url string"
  columns: {host: "parse_url(url, 'HOST')"}
  coordinates: meta.kafka
  date: "to_date(substr(meta.producer.timestamp, 1, 10))"
  date_window: {start: 2020-01-01, ahead: 2 days}
  app_id: web_requests                  # default: the topic
  start: earliest
  drain_when: {backlog_messages: 1000, lag_seconds: 60}
  freshness: {warn: 5 minutes, fail: 2 hours}
  checks: {blocking: [fresh, every_offset_accounted_for], dead_letter_rate: 0.05}
  max_records: 5000000                  # per plan
  properties: {delta.checkpointInterval: "20"}
  description: Requests
  owners: [team:web]
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDI_KAFKA", raising=False)
    monkeypatch.delenv("KDI_DEFS", raising=False)


def test_the_shortest_document_has_five_lines_and_sensible_defaults(tmp_path: Path) -> None:
    stream = only_stream(tmp_path, with_attribute(""))

    cluster = KafkaCluster("main", "localhost:9092")
    assert stream == Stream("orders", "bronze/orders", "id bigint", "current_date()", cluster)
    assert (stream.app_id, stream.name) == ("orders", "bronze/orders")


def test_every_field_of_the_full_document_arrives_in_the_stream(tmp_path: Path) -> None:
    stream = only_stream(tmp_path, IN_FULL)

    assert stream == Stream(
        topic="web_requests",
        table="bronze/web_requests",
        record_ddl="meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int,"
        " url string",
        date_expression="to_date(substr(meta.producer.timestamp, 1, 10))",
        cluster=KafkaCluster("main", "localhost:9092"),
        columns={"host": "parse_url(url, 'HOST')"},
        coordinates="meta.kafka",
        date_window=DateWindow(date(2020, 1, 1), 2),
        app_id="web_requests",
        start="earliest",
        drain_when=DrainWhen(1000, 60),
        freshness=FreshnessLimits(300, 7200),
        checks=Checks(("fresh", "every_offset_accounted_for"), 0.05),
        max_records=5_000_000,
        properties={"delta.checkpointInterval": "20"},
        description="Requests",
        owners=("team:web",),
    )


@pytest.mark.parametrize("text", ["'x'", "20", "{# kept #}", "{{ kept }}", "{% kept %}", "123", "a: b", "  edge  "])
def test_sql_and_property_values_are_taken_verbatim_at_the_top_and_inside_mappings(tmp_path: Path, text: str) -> None:
    quoted = '"' + text + '"'
    columns = with_attribute(f"columns: {{c: {quoted}}}\n  properties: {{p: {quoted}}}\n  description: {quoted}")
    document = columns.replace("current_date()", quoted)

    stream = only_stream(tmp_path, document)

    assert (stream.columns, stream.properties) == ({"c": text}, {"p": text})
    assert (stream.date_expression, stream.description) == (text, text)


def test_an_app_id_of_digits_stays_text(tmp_path: Path) -> None:
    assert only_stream(tmp_path, with_attribute('app_id: "123"')).app_id == "123"


def test_a_property_called_by_dots_stays_one_name(tmp_path: Path) -> None:
    stream = only_stream(tmp_path, with_attribute('properties: {delta.logRetentionDuration: "interval 30 days"}'))

    assert stream.properties == {"delta.logRetentionDuration": "interval 30 days"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("latest", "latest"),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ('"2026-01-01T02:00:00+02:00"', datetime(2026, 1, 1, tzinfo=UTC)),
        ("{0: 1200, 1: 0}", {0: 1200, 1: 0}),
    ],
)
def test_a_stream_may_begin_at_a_word_a_moment_or_given_offsets(tmp_path: Path, written: str, meant: object) -> None:
    assert only_stream(tmp_path, with_attribute(f"start: {written}")).start == meant


@pytest.mark.parametrize(("written", "days"), [("0 days", 0), ("1 day", 1), ("14 days", 14)])
def test_a_date_window_reaches_so_many_days_ahead(tmp_path: Path, written: str, days: int) -> None:
    window = only_stream(tmp_path, with_attribute(f"date_window: {{ahead: {written}}}")).date_window

    assert window == DateWindow(date(2020, 1, 1), days)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tabel: x", "tabel: no such field; did you mean table?"),
        ("app_id: 123", "app_id: takes text, and 123 is a number in YAML; put it in quotes"),
        ("description: no", "description: takes text, and False is a truth value in YAML; put it in quotes"),
        ("columns:", "columns: is empty; give it a value, e.g. {host: 'parse_url(url, ''HOST'')'}"),
        ('columns: {c: " "}', "columns.c: is empty; give it Spark SQL"),
        ("columns: {_kdi_c: x}", "columns._kdi_c: '_kdi_c' is not the path of a column; names without blanks"),
        ("coordinates: meta..kafka", "coordinates: 'meta..kafka' is not the path of a column; names without blanks"),
        ("properties: {p: 20}", "properties.p: takes text, and 20 is a number in YAML; put it in quotes"),
        (
            "properties: {delta.setTransactionRetentionDuration: 1 day}",
            "properties.delta.setTransactionRetentionDuration: is refused: Delta would forget the positions",
        ),
        ("date_window: {start: 2020-02-30}", "date_window.start: '2020-02-30' is not a date; e.g. 2020-01-01"),
        ("date_window: {start: 9999-01-01}", "date_window: no date is allowed: it starts 9999-01-01 and ends"),
        ("date_window: {ahead: 2}", "date_window.ahead: 2 is not a number of days; e.g. 2 days, or 0 days"),
        ("date_window: {ahead: -1 days}", "date_window.ahead: '-1 days' is not a number of days"),
        ("date_window: 2 days", "date_window: takes a mapping, not '2 days'; e.g. {start: '2020-01-01', ahead"),
        ("start: tomorrow", "start: 'tomorrow' says no beginning; earliest, latest, e.g. 2026-01-01T00:00:00Z"),
        ("start: 2026-01-01", "start: '2026-01-01' has no time zone; e.g. 2026-01-01T00:00:00+00:00"),
        ("start: {0: -1}", "start: {0: -1} is no topic partition and offset; e.g. {0: 1200, 1: 0}"),
        ("start: {a: 1}", "start: {a: 1} is no topic partition and offset; e.g. {0: 1200, 1: 0}"),
        (
            "drain_when: {backlog_messages: yes}",
            "drain_when.backlog_messages: takes a whole number, not True; e.g. 1000",
        ),
        ('drain_when: {cron: "0 0 30 2 *"}', "drain_when.cron: '0 0 30 2 *' names no day that there is"),
        ('drain_when: {cron: "every hour"}', "drain_when.cron: 'every hour' is not a cron expression; five fields"),
        ("status: pause", "status: 'pause' is no status; active, paused or retired"),
        ("drain_when: {backlog_messages: 0}", "drain_when.backlog_messages: 0 is too small; at least 1"),
        (
            "drain_when: {lag: 3}",
            "drain_when.lag: no such field; known: backlog_bytes, backlog_messages, cron, lag_seconds",
        ),
        ('max_records: "5"', "max_records: takes a whole number, not '5'; e.g. 5000000"),
        ("owners: team:web", "owners: takes a list, not 'team:web'; e.g. ['team:web']"),
        ("owners: [web]", "owners.0: 'web' is neither a team nor an address; e.g. team:web or someone@example.com"),
        ("freshness: {warn: 300, fail: 1 hour}", "freshness.warn: 300 is not a length of time; e.g. 5 minutes"),
        ("freshness: {warn: 30 seconds, fail: 1 hour}", "freshness.warn: '30 seconds' is too short; at least 1 minute"),
        ("freshness: {warn: 1 hour, fail: 60 minutes}", "freshness: fails after 60 minutes and warns after 1 hour; a"),
        ("freshness: {warm: 1 hour, fail: 2 hours, warn: 1 hour}", "freshness.warm: no such field; did you mean warn?"),
        (
            "checks: {blocking: [dead_letters_rate]}",
            "checks.blocking.0: there is no check 'dead_letters_rate'; did you mean dead_letter_rate?",
        ),
        ("checks: {dead_letter_rate: 1 %}", "checks.dead_letter_rate: '1 %' is no share; between 0 and 1, e.g. 0.01"),
        ("cluster: mian", "cluster: no KafkaCluster document is named 'mian'; did you mean main?"),
    ],
)
def test_a_mistake_names_line_field_and_what_would_be_right(tmp_path: Path, line: str, said: str) -> None:
    assert only_mistake(tmp_path, line).startswith(said)


def test_a_check_of_freshness_cannot_block_without_limits_of_freshness(tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match="checks.blocking names fresh, and freshness is not given"):
        only_stream(tmp_path, with_attribute("checks: {blocking: [fresh]}"))


@pytest.mark.parametrize("name", ["bronze/", "/bronze", "../bronze", "bronze//orders", "bronze/my orders", "s3://b/t"])
def test_a_table_is_a_path_below_the_root_of_the_lake(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistakes, match=f"table: '{name}' is not a path below the lake's root"):
        only_stream(tmp_path, with_attribute("").replace("bronze/orders", name))


def test_all_missing_fields_are_named_at_the_line_of_the_attributes(tmp_path: Path) -> None:
    with pytest.raises(Mistakes) as refused:
        only_stream(tmp_path, "type: kdi_assets.components.TopicTable\nattributes: {}\n")

    assert [(m.line, m.field, m.message) for m in refused.value.mistakes] == [
        (6, field, "is missing") for field in ("date", "schema", "table", "topic")
    ]


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in model.model_fields.values():
        for inner in (info.annotation, *get_args(info.annotation)):
            if isinstance(inner, type) and issubclass(inner, Fields):
                yield from models(inner)


@pytest.mark.parametrize("model", [*models(TopicTableFields), *models(KafkaClusterFields)])
def test_every_field_is_described_and_has_an_example(model: type[BaseModel]) -> None:
    assert model.model_fields
    assert [name for name, info in model.model_fields.items() if not (info.description and info.examples)] == []


@pytest.mark.parametrize("model", [TopicTableFields, KafkaClusterFields])
def test_the_examples_of_the_fields_make_a_right_document(model: type[BaseModel]) -> None:
    document = {info.alias or name: info.examples[0] for name, info in model.model_fields.items() if info.examples}

    assert model.model_validate(document)


SECRET = """
type: kdi_assets.components.KafkaCluster
attributes:
  name: cloud
  bootstrap_servers: broker-1:9092, broker-2:9092
  properties: {sasl.username: kdi, sasl.password: {env: KDI_TEST_PASSWORD}}
---
"""


def test_a_secret_is_read_from_the_environment_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = only_stream(tmp_path, SECRET + with_attribute("cluster: cloud")).cluster
    monkeypatch.setenv("KDI_TEST_PASSWORD", "hush")

    assert cluster.bootstrap_servers == "broker-1:9092, broker-2:9092"
    assert dict(cluster.properties) == {"sasl.username": "kdi", "sasl.password": "hush"}
    assert "hush" not in repr(cluster)


def test_a_secret_that_is_not_set_is_named_when_it_is_used_and_not_before(tmp_path: Path) -> None:
    cluster = only_stream(tmp_path, SECRET + with_attribute("cluster: cloud")).cluster

    with pytest.raises(
        EnvironmentVariableMissing, match="sasl.password comes from the environment variable KDI_TEST_P"
    ):
        dict(cluster.properties)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("{sasl.password: {evn: X}}", "properties.sasl.password: {'evn': 'X'} names no environment variable"),
        ("{socket.timeout.ms: 3}", "properties.socket.timeout.ms: takes text, not 3; put it in quotes"),
        ("{isolation.level: x}", "properties.isolation.level: is not a property to set here; remove it"),
    ],
)
def test_a_wrong_client_property_says_what_would_be_right(tmp_path: Path, properties: str, said: str) -> None:
    right = "{sasl.username: kdi, sasl.password: {env: KDI_TEST_PASSWORD}}"
    with pytest.raises(Mistakes) as refused:
        only_stream(tmp_path, SECRET.replace(right, properties) + with_attribute("cluster: cloud"))

    assert [f"{m.field}: {m.message}; {m.right}".startswith(said) for m in refused.value.mistakes] == [True]
