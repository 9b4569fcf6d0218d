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
from kdi_assets.components.load import load_streams
from kdi_assets.components.mistakes import Mistakes
from kdi_assets.components.reading import read_streams
from kdi_assets.components.strict import Fields
from kdi_assets.message_rules import DeadLetterLimit, Expectation, Explode, Mask
from kdi_assets.stream import Checks, DateWindow, DrainWhen, FreshnessLimits, KafkaCluster, Stream
from tests.documents import stream, written
from tests.protobuf_messages import SHOP, descriptors

CLUSTER = """
type: kdi_assets.components.KafkaCluster
attributes: {name: main, bootstrap_servers: "localhost:9092"}
---
"""
HASHED = Mask("hash", secret="SALT")
SHORTEST = {"topic": "orders", "table": "bronze/orders", "schema": "id bigint", "date": "current_date()"}
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


def only_stream(folder: Path, document: str) -> Stream:
    (folder / "defs.yaml").write_text(CLUSTER + document, encoding="utf-8")
    (stream,) = load_streams(folder).values()
    return stream


def with_attribute(line: str) -> str:
    attributes = "\n".join(f"  {name}: {value}" for name, value in SHORTEST.items())
    return f"type: kdi_assets.components.TopicTable\nattributes:\n{attributes}\n  {line}\n"


def only_mistake(folder: Path, line: str) -> str:
    with pytest.raises(Mistakes) as refused:
        only_stream(folder, with_attribute(line))
    (mistake,) = refused.value.mistakes
    assert mistake.line == 11, mistake.text()
    return f"{mistake.field}: {mistake.message}; {mistake.right}"


def test_what_is_exploded_reaches_the_stream_as_it_was_written(tmp_path: Path) -> None:
    array = "filter(items, i -> i.qty > 0)"

    asked = only_stream(tmp_path, with_attribute(f'explode: {{item: "{array}"}}'))

    assert (asked.explode, asked.explodes) == (Explode("item", array), True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("items", "'items' is not a name and an array; one of each, e.g. {item: items}"),
        ("{}", "{} is not a name and an array; one of each, e.g. {item: items}"),
        ("{a: x, b: y}", "{'a': 'x', 'b': 'y'} is not a name and an array; one of each, e.g. {item: items}"),
        ("{a.b: x}", "'a.b' is no name for an element; letters, digits and '_', e.g. item"),
        ("{_kdi_a: x}", "'_kdi_a' is no name for an element; letters, digits and '_', e.g. item"),
        ("{item: }", "None is no expression; Spark SQL of an array, e.g. {item: items}"),
    ],
)
def test_what_nothing_can_be_exploded_by_is_refused(tmp_path: Path, written: str, said: str) -> None:
    assert only_mistake(tmp_path, f"explode: {written}") == f"explode: {said}"


def test_a_filter_reaches_the_stream_as_it_was_written(tmp_path: Path) -> None:
    condition = "kind = 'order' AND get(kafka.headers, 0).key <> '{test}'"

    assert only_stream(tmp_path, with_attribute(f'filter: "{condition}"')).filter == condition
    assert only_mistake(tmp_path, 'filter: " "') == "filter: is empty; give it Spark SQL"


def test_masks_are_words_or_say_how_much_is_kept_or_where_the_secret_lies(tmp_path: Path) -> None:
    line = "mask: {a: drop, b: null, b.c: 'null', d: {keep_last: 4}, e: {hash: {env: SALT}}}"

    stream = only_stream(tmp_path, with_attribute(line))

    assert list(stream.mask.values()) == [Mask("drop"), Mask("null"), Mask("null"), Mask("keep_last", keep=4), HASHED]
    assert stream.dead_letter_payload is None


@pytest.mark.parametrize(
    "mask",
    ["hide", "{keep_last: 0}", "{keep_last: yes}", "{hash: SALT}", "{hash: {env: A, b: 1}}", "{keep_last: 1, x: 1}"],
)
def test_what_is_no_mask_is_named(tmp_path: Path, mask: str) -> None:
    said = only_mistake(tmp_path, f"mask: {{a: {mask}}}")

    assert said.startswith("mask.a: ") and "is no mask; drop, null, {keep_last: 4}, or {hash: {env: NAME}}" in said


def test_what_dead_letters_hold_is_one_of_three(tmp_path: Path) -> None:
    for word in ("keep", "mask", "withhold"):
        assert only_stream(tmp_path, with_attribute(f"dead_letter_payload: {word}")).dead_letter_payload == word
    assert only_mistake(tmp_path, "dead_letter_payload: hide").endswith(
        "says nothing of payloads; keep, mask or withhold"
    )


def test_expectations_have_names_conditions_and_what_happens(tmp_path: Path) -> None:
    line = "expectations: {is_ours: {sql: \"tenant = 'acme'\", then: fail}, has_id: {sql: id > 0}}"

    expected = only_stream(tmp_path, with_attribute(line)).expectations

    assert expected == {"is_ours": Expectation("tenant = 'acme'", "fail"), "has_id": Expectation("id > 0", "warn")}
    assert list(only_stream(tmp_path, with_attribute(line)).check_names).count("expectations") == 1
    assert "expectations" not in only_stream(tmp_path, with_attribute("")).check_names


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "expectations: {Is ours: {sql: id > 0}}",
            "expectations.Is ours: 'Is ours' is not a name for an exp",
        ),
        ("contract: {types: x}", "contract.types: 'x' is no policy; evolve, freeze, discard_value or discard_row"),
        ("rescued: a.b", "rescued: 'a.b' is not a name for this column; a name without dots"),
        ("rescued: date", "rescued: 'date' is not a name for this column; a name without dots"),
        (
            "contract: {new_columns: drop}",
            "contract.new_columns: 'drop' is no policy; evolve, freeze, discard_value or",
        ),
        ("expectations: {ours: {sql: id > 0, then: drop}}", "expectations.ours.then: 'drop' is nothing to do; warn,"),
        ("expectations: {ours: {sq: id > 0, sql: id > 0}}", "expectations.ours.sq: no such field; did you mean sql?"),
        ("expectations: {ours: {then: warn}}", "expectations.ours.sql: is missing; e.g. sql: status BETWEEN"),
    ],
)
def test_what_is_wrong_with_an_expectation_is_named(tmp_path: Path, line: str, said: str) -> None:
    assert only_mistake(tmp_path, line).startswith(said)


@pytest.mark.parametrize("line", ["rescued: more", "contract: {types: discard_value}"])
def test_what_asks_for_single_fields_is_for_json_alone(tmp_path: Path, line: str) -> None:
    with pytest.raises(Mistakes, match="asks for single fields of messages, and only of json they are at hand, not"):
        only_stream(tmp_path, with_attribute(f"{line}\n  format: csv"))


@pytest.mark.parametrize("policy", ["freeze", "discard_row"])
def test_what_does_not_tell_its_unknown_fields_is_not_judged_by_them(tmp_path: Path, policy: str) -> None:
    with pytest.raises(Mistakes, match="messages of csv do not tell here which fields the record has not"):
        only_stream(tmp_path, with_attribute(f"contract: {{new_columns: {policy}}}\n  format: csv"))

    assert only_stream(tmp_path, with_attribute(f"contract: {{new_columns: {policy}}}")).contract.new_columns == policy


def test_protobuf_by_a_file_tells_its_unknown_fields_and_keeps_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(descriptors(SHOP))

    def given(more: str) -> Stream:
        record = "format: {protobuf: {descriptor_file: orders.desc, message: shop.Order}}"
        return only_stream(tmp_path, stream("orders", record=record, more=f", {more}"))

    for policy in ("discard_value", "discard_row", "freeze", "evolve"):
        assert given(f"contract: {{new_columns: {policy}}}").contract.new_columns == policy
    with pytest.raises(Mistakes, match="only of json they are at hand, not of protobuf"):
        given("rescued: more")


def test_what_becomes_several_rows_does_not_evolve(tmp_path: Path) -> None:
    evolves = "contract: {types: evolve}"
    with pytest.raises(Mistakes, match="evolve does not know the columns of elements"):
        only_stream(tmp_path, with_attribute(f"{evolves}\n  explode: {{one: parts}}"))

    container = "format: {avro: {container: true, schema_file: a.avsc}}"
    found = read_streams(written(tmp_path, c=stream("bronze/c", record=container, more=f", {evolves}"))).mistakes
    assert any("evolve does not know the columns of elements" in mistake.message for mistake in found)


def test_expectations_block_by_themselves_and_not_by_their_check(tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match="names expectations, and that check only warns; `then: fail` stops the drain"):
        only_stream(tmp_path, with_attribute("checks: {blocking: [expectations]}"))


def test_the_limit_of_dead_letters_is_given_by_share_and_count(tmp_path: Path) -> None:
    limit = only_stream(tmp_path, with_attribute("dead_letter_limit: {share: 0.1, count: 1000}")).dead_letter_limit

    assert limit == DeadLetterLimit(share=0.1, count=1000)
    assert "dead_letter_limit.share: 10 is no share; between 0 and 1" in only_mistake(
        tmp_path, "dead_letter_limit: {share: 10}"
    )
    assert only_mistake(tmp_path, "dead_letter_limit: {rate: 0.1}").startswith("dead_letter_limit.rate: no such field")


@pytest.mark.parametrize(
    ("limit", "dead_letters", "messages", "passed"),
    [
        (DeadLetterLimit(), 100, 100, False),  # a handful of bad messages, and no others
        (DeadLetterLimit(), 101, 101, True),
        (DeadLetterLimit(), 500_000, 1_000_000, False),
        (DeadLetterLimit(), 500_001, 1_000_000, True),
        (DeadLetterLimit(share=0, count=10), 11, 1_000_000, True),
        (DeadLetterLimit(share=0.1, count=0), 1, 9, True),
        (DeadLetterLimit(share=1, count=0), 9, 9, False),
    ],
)
def test_the_limit_is_passed_by_too_many_that_are_also_too_large_a_share(
    limit: DeadLetterLimit, dead_letters: int, messages: int, passed: bool
) -> None:
    assert limit.is_passed_by(dead_letters, of=messages) is passed


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
