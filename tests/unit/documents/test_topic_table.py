"""The fields of a stream's document, taken literally, and the message for each mistake."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.loading.validation import json_schema
from kdi_assets.documents.loading.yaml_documents import parse
from kdi_assets.documents.model.connections.client_values import EnvironmentVariableMissing
from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.message_rules import Contract, DeadLetterLimit, Expectation, Explode, Mask
from kdi_assets.documents.model.stream import Checks, Cluster, DateWindow, DrainWhen, FreshnessLimits, Stream
from tests.documents import SHORTEST, only_mistake, only_stream, with_attribute
from tests.table_by_hand import orders

IN_FULL = """
type: kdi_assets.components.TopicTable
attributes:
  topic: web_requests
  cluster: main                         # the default
  table: bronze/web_requests            # lies at $KDI_LAKE/bronze/web_requests, dead letters at …_dead_letters
  schema: "meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int, url string"
  compression: gzip
  columns: {host: "parse_url(url, 'HOST')"}
  filter: "method <> '{test}'"
  explode: {item: "filter(items, i -> i.qty > 0)"}
  coordinates: meta.kafka
  date: "to_date(substr(meta.producer.timestamp, 1, 10))"
  date_window: {start: 2020-01-01, ahead: 14 days}
  keep: 400 days
  app_id: "123"                         # default: the topic
  start: {0: 1200, 1: 0}
  drain_when: {cron: "0 * * * *", lag_seconds: 60}
  status: paused
  freshness: {warn: 5 minutes, fail: 2 hours}
  checks: {blocking: [fresh, every_offset_accounted_for], dead_letter_rate: 0.05, cpu_seconds_a_day: 3600}
  tombstones: row
  mask: {a: drop, b: null, b.c: "null", d: {keep_last: 4}, e: {hash: {env: SALT}}}
  tags: {a: pii, b.c: [pii, "gdpr:art9"]}
  mask_tagged: {pii: null}
  dead_letter_payload: withhold
  expectations: {is_ours: {sql: "tenant = 'acme'", then: fail}, has_id: {sql: id > 0}}
  contract: {new_columns: freeze, types: discard_value}
  rescued: more
  dead_letter_limit: {share: 0.1, count: 1000}
  renamed_from: bronze/requests
  max_records: 1000                     # per plan
  max_bytes: 2000
  target_file_size: 134217728
  properties: {delta.checkpointInterval: "20"}
  description: Requests
  owners: [team:web]
"""


def test_the_shortest_document_has_five_lines_and_sensible_defaults(tmp_path: Path) -> None:
    stream = only_stream(tmp_path, with_attribute(""))

    cluster = Cluster("main", "localhost:9092")
    assert stream == Stream("orders", "bronze/orders", "id bigint", "current_date()", cluster)
    assert (stream.app_id, stream.name) == ("orders", "bronze/orders")


def test_the_first_date_of_new_rows_is_the_later_one_of_the_windows_start_and_of_what_is_kept() -> None:
    stream = orders(date_window=DateWindow(date(2026, 1, 1)), keep_days=10)
    day_30, day_5 = datetime(2026, 1, 31, 0, 30, tzinfo=UTC), datetime(2026, 1, 5, 23, 30, tzinfo=UTC)

    assert (stream.kept_from(day_30), stream.first_date(day_30)) == (date(2026, 1, 21), date(2026, 1, 21))
    assert (stream.kept_from(day_5), stream.first_date(day_5)) == (date(2025, 12, 26), date(2026, 1, 1))
    assert (orders().kept_from(day_5), orders().first_date(day_5)) == (None, DateWindow().first)


def test_every_field_of_the_full_document_arrives_in_the_stream(tmp_path: Path) -> None:
    stream = only_stream(tmp_path, IN_FULL)

    assert stream == Stream(
        topic="web_requests",
        table="bronze/web_requests",
        record_ddl="meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int,"
        " url string",
        date_expression="to_date(substr(meta.producer.timestamp, 1, 10))",
        cluster=Cluster("main", "localhost:9092"),
        compression="gzip",
        columns={"host": "parse_url(url, 'HOST')"},
        filter="method <> '{test}'",
        explode=Explode("item", "filter(items, i -> i.qty > 0)"),
        coordinates="meta.kafka",
        date_window=DateWindow(date(2020, 1, 1), 14),
        keep_days=400,
        app_id="123",
        start={0: 1200, 1: 0},
        drain_when=DrainWhen(backlog_messages=None, lag_seconds=60, cron="0 * * * *"),
        status="paused",
        freshness=FreshnessLimits(300, 7200),
        checks=Checks(("fresh", "every_offset_accounted_for"), 0.05, 3600),
        tombstones="row",
        mask={
            "a": Mask("drop"),
            "b": Mask("null"),
            "b.c": Mask("null"),
            "d": Mask("keep_last", keep=4),
            "e": Mask("hash", secret="SALT"),
        },
        tags={"a": ("pii",), "b.c": ("pii", "gdpr:art9")},
        mask_tagged={"pii": Mask("null")},
        dead_letter_payload="withhold",
        expectations={"is_ours": Expectation("tenant = 'acme'", "fail"), "has_id": Expectation("id > 0", "warn")},
        contract=Contract("freeze", "discard_value"),
        rescued="more",
        dead_letter_limit=DeadLetterLimit(0.1, 1000),
        renamed_from="bronze/requests",
        max_records=1000,
        max_bytes=2000,
        target_file_size=134_217_728,
        properties={"delta.checkpointInterval": "20"},
        description="Requests",
        owners=("team:web",),
    )
    assert "expectations" in stream.check_names
    assert "expectations" not in only_stream(tmp_path, with_attribute("")).check_names


@pytest.mark.parametrize("text", ["'x'", "20", "{# kept #}", "{{ kept }}", "{% kept %}", "123", "a: b", "  edge  "])
def test_sql_and_property_values_are_taken_verbatim_at_the_top_and_inside_mappings(tmp_path: Path, text: str) -> None:
    quoted = '"' + text + '"'
    columns = with_attribute(f"columns: {{c: {quoted}}}\n  properties: {{p: {quoted}}}\n  description: {quoted}")
    document = columns.replace("current_date()", quoted)

    stream = only_stream(tmp_path, document)

    assert (stream.columns, stream.properties) == ({"c": text}, {"p": text})
    assert (stream.date_expression, stream.description) == (text, text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("latest", "latest"),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ('"2026-01-01T02:00:00+02:00"', datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_stream_may_begin_at_a_word_or_a_moment(tmp_path: Path, written: str, meant: object) -> None:
    assert only_stream(tmp_path, with_attribute(f"start: {written}")).start == meant


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tabel: x", "tabel: no such field; did you mean table?"),
        ("app_id: 123", "app_id: takes text, and 123 is a number in YAML; put it in quotes"),
        ("columns:", "columns: is empty; give it a value, e.g. {host: 'parse_url(url, ''HOST'')'}"),
        ('columns: {c: " "}', "columns.c: is empty; give it Spark SQL"),
        ("columns: {_kdi_c: x}", "columns._kdi_c: '_kdi_c' is not the path of a column; names without blanks"),
        ("explode: items", "explode: 'items' is not a name and an array; one of each, e.g. {item: items}"),
        ("explode: {a: x, b: y}", "explode: {'a': 'x', 'b': 'y'} is not a name and an array; one of each, e.g."),
        ("explode: {_kdi_a: x}", "explode: '_kdi_a' is not a name for an element; letters, digits and '_', e.g. item"),
        ("explode: {item: }", "explode: None is not an expression; Spark SQL of an array, e.g. {item: items}"),
        ("properties: {delta.setTransactionRetentionDuration: 1 day}", ""),
        ("date_window: {start: 2020-02-30}", "date_window.start: '2020-02-30' is not a date; e.g. 2020-01-01"),
        ("date_window: {start: 9999-01-01}", "date_window: no date is allowed: it starts 9999-01-01 and ends"),
        ("date_window: {ahead: -1 days}", "date_window.ahead: '-1 days' is not a number of days; e.g. 2 days, or 0"),
        ("keep: 0 days", "keep: '0 days' keeps nothing; e.g. 400 days; without the field, rows are kept for ever"),
        ("keep: 400", "keep: 400 is not a number of days; e.g. 2 days, or 0 days"),
        ("date_window: 2 days", "date_window: takes a mapping, not '2 days'; e.g. {start: '2020-01-01', ahead"),
        (
            "start: tomorrow",
            "start: 'tomorrow' does not say where to begin; earliest, latest, e.g. 2026-01-01T0",
        ),
        ("start: 2026-01-01", "start: '2026-01-01' has no time zone; e.g. 2026-01-01T00:00:00+00:00"),
        ("start: {0: -1}", "start: {0: -1} is not a topic partition and offset; e.g. {0: 1200, 1: 0}"),
        ("drain_when: {backlog_messages: yes}", "drain_when.backlog_messages: takes a whole number, not True; e.g."),
        ('drain_when: {cron: "0 0 30 2 *"}', "drain_when.cron: '0 0 30 2 *' never comes: it is not a calendar day"),
        ('drain_when: {cron: "every hour"}', "drain_when.cron: 'every hour' is not a cron expression; five fields"),
        ("drain_when: {lag: 3}", "drain_when.lag: no such field; did you mean lag_seconds?"),
        ("status: pause", "status: takes active, paused or retired, not 'pause'; e.g. active"),
        ("owners: team:web", "owners: takes a list, not 'team:web'; e.g. ['team:web']"),
        ("owners: [web]", "owners.0: 'web' is neither a team nor an address; e.g. team:web or someone@example.com"),
        ("freshness: {warn: 30 seconds, fail: 1 hour}", "freshness.warn: '30 seconds' is too short; at least 1 minute"),
        ("freshness: {warn: 1 hour, fail: 60 minutes}", "freshness: fails after 3600 s and warns after 3600 s; a"),
        ("checks: {blocking: [dead_letters]}", "checks.blocking.0: takes every_offset_accounted_for, no_duplicate_"),
        ("checks: {blocking: [fresh]}", "checks: blocking names fresh, and freshness is not given; give freshness"),
        ("checks: {blocking: [expectations]}", "checks: blocking names expectations, and that check only warns; `th"),
        ("checks: {blocking: [cpu_seconds_a_day]}", "checks: blocking names cpu_seconds_a_day, and that check only"),
        ("checks: {cpu_seconds_a_day: 0}", "checks.cpu_seconds_a_day: "),
        (
            "checks: {dead_letter_rate: 1 %}",
            "checks.dead_letter_rate: '1 %' is not a share; between 0 and 1, e.g. 0",
        ),
        ("cluster: mian", "cluster: no KafkaCluster document is named 'mian'; did you mean main?"),
        ("expectations: {Is ours: {sql: id > 0}}", "expectations.Is ours: 'Is ours' is not a name for an exp"),
        ("expectations: {ours: {then: warn}}", "expectations.ours.sql: is missing; e.g. sql: status BETWEEN"),
        ("rescued: date", "rescued: 'date' is not a name for this column; a name without dots"),
        ("contract: {types: evolve}\n  explode: {a: b}", "contract: evolve does not know the columns of elements"),
        ("rescued: more\n  format: csv", "rescued: needs single fields of messages, which only json has"),
        (
            "contract: {types: discard_value}\n  format: csv",
            "contract.types: needs single fields of messages, which only json has",
        ),
        (
            "contract: {new_columns: freeze}\n  format: csv",
            "contract.new_columns: unknown fields cannot be found in messages of csv here",
        ),
    ],
)
def test_a_mistake_names_line_field_and_what_would_be_right(tmp_path: Path, line: str, said: str) -> None:
    assert only_mistake(tmp_path, line).startswith(said)


@pytest.mark.parametrize(
    "mask",
    ["hide", "{keep_last: 0}", "{keep_last: yes}", "{hash: SALT}", "{hash: {env: A, b: 1}}", "{keep_last: 1, x: 1}"],
)
def test_what_is_no_mask_is_named(tmp_path: Path, mask: str) -> None:
    said = only_mistake(tmp_path, f"mask: {{a: {mask}}}")

    assert said.startswith("mask.a: ") and "is not a mask; drop, null, {keep_last: 4}, or {hash: {env: NAME}}" in said


@pytest.mark.parametrize("line", ["tags: {a: PII}", "tags: {a: [pii, '']}", "mask_tagged: {Pii: null}"])
def test_what_is_no_tag_is_named(tmp_path: Path, line: str) -> None:
    assert "is not the name of a tag; small letters, digits and '_.:-', e.g. pii" in only_mistake(tmp_path, line)


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


@pytest.mark.parametrize(
    ("limit", "dead_letters", "messages", "passed"),
    [
        (DeadLetterLimit(), 100, 100, False),  # a handful of bad messages, and no others
        (DeadLetterLimit(), 101, 101, True),
        (DeadLetterLimit(), 500_001, 1_000_000, True),
        (DeadLetterLimit(share=0, count=10), 11, 1_000_000, True),
        (DeadLetterLimit(share=0.1, count=0), 1, 9, True),
    ],
)
def test_the_limit_is_number_and_share(limit: DeadLetterLimit, dead_letters: int, messages: int, passed: bool) -> None:
    assert limit.is_passed_by(dead_letters, of=messages) is passed


@pytest.mark.parametrize("of", [Stream, Cluster, Registry])
def test_every_field_is_described_and_has_an_example(of: type) -> None:
    schema = json_schema(of)

    for described in (schema, *schema["$defs"].values()):
        fields = described["properties"].items()
        assert [name for name, said in fields if not (said.get("description") and said.get("examples"))] == []


def test_the_schema_that_dagster_shows_takes_what_documents_say() -> None:
    validator = jsonschema_rs.validator_for(json_schema(Stream))
    words = {**SHORTEST, "format": "text"}

    for attributes in (parse(IN_FULL, "f").documents[0].attributes, SHORTEST, words):
        assert list(validator.iter_errors(json.loads(json.dumps(attributes)))) == []
    assert not validator.is_valid({**SHORTEST, "tabel": "x"})


def test_the_examples_of_the_fields_make_a_right_document(tmp_path: Path) -> None:
    def examples(of: type) -> dict[str, Any]:
        return {name: said["examples"][0] for name, said in json_schema(of)["properties"].items()}

    documents = {"KafkaCluster": examples(Cluster), "SchemaRegistry": examples(Registry)}
    documents["TopicTable"] = examples(Stream)
    texts = (json.dumps({"type": f"kdi_assets.components.{name}", "attributes": d}) for name, d in documents.items())
    (tmp_path / "defs.yaml").write_text("\n---\n".join(texts), encoding="utf-8")

    assert list(load_streams(tmp_path)) == ["bronze/web_requests"]


SECRET = """
type: kdi_assets.components.KafkaCluster
attributes:
  name: cloud
  bootstrap_servers: broker-1:9092, broker-2:9092
  properties: {sasl.username: kdi, sasl.password: {env: KDI_TEST_PASSWORD}}
---
"""


def test_a_secret_is_read_from_the_environment_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = only_stream(tmp_path, SECRET + with_attribute("cluster: cloud")).kafka
    assert cluster.bootstrap_servers == "broker-1:9092, broker-2:9092"
    with pytest.raises(
        EnvironmentVariableMissing, match="cluster cloud: sasl.password comes from the environment variable KDI_TEST_P"
    ):
        dict(cluster.properties)

    monkeypatch.setenv("KDI_TEST_PASSWORD", "hush")

    assert dict(cluster.properties) == {"sasl.username": "kdi", "sasl.password": "hush"}
    assert "hush" not in repr(cluster)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("{sasl.password: {evn: X}}", "properties.sasl.password: {'evn': 'X'} does not name an environment variable"),
        ("{socket.timeout.ms: 3}", "properties.socket.timeout.ms: takes text; put it in quotes"),
        ("{isolation.level: x}", "properties.isolation.level: is not a property to set here; remove it"),
    ],
)
def test_a_wrong_client_property_says_what_would_be_right(tmp_path: Path, properties: str, said: str) -> None:
    right = "{sasl.username: kdi, sasl.password: {env: KDI_TEST_PASSWORD}}"
    with pytest.raises(Mistakes) as refused:
        only_stream(tmp_path, SECRET.replace(right, properties) + with_attribute("cluster: cloud"))

    assert [f"{m.field}: {m.message}; {m.right}".startswith(said) for m in refused.value.mistakes] == [True]
