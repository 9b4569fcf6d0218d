"""`kdi check` finds with Spark what production would find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from typer.testing import CliRunner, Result

from kdi_assets.cli.documents.check import check
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules import shared_analysis
from kdi_assets.streams.rules.shape import analyse
from tests.documents import TOPIC_TABLES
from tests.formats.fake_registry import RunningRegistry

STREAMS = """type: kdi_assets.components.KafkaCluster
attributes: {name: main, bootstrap_servers: "localhost:9092"}
---
type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  table: bronze/orders
  schema: "id bigint, url string, at string, user struct<name: string, id: bigint>"
  columns:
    host: "parse_url(url, 'HOST')"
    path: "parse_url(url, 'PATH')"
  date: to_date(at)
"""
OF_KINESIS = """type: kdi_assets.components.KinesisConnection
attributes: {{name: main, region: eu-central-1}}
---
type: kdi_assets.components.KinesisTable
attributes:
  stream_name: orders
  connection: main
  table: bronze/orders
  columns: {{made: "{}"}}
  schema: id bigint
  date: to_date(kinesis.timestamp)
"""


pytestmark = pytest.mark.usefixtures("one_jvm")


def checked(folder: Path, text: str, *options: str) -> Result:
    (folder / "defs.yaml").write_text(text, encoding="utf-8")
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, ["--defs", str(folder), *options])


def test_the_packages_own_documents_mean_something_to_spark() -> None:
    app = typer.Typer()
    app.command()(check)

    result = CliRunner().invoke(app, [])

    assert (result.exit_code, result.stdout) == (0, "streams: 1, refined tables: 2, served tables: 1, mistakes: 0\n")


def test_documents_are_checked_on_a_machine_whose_cluster_is_not_reached(tmp_path: Path) -> None:
    """Purpose: only Spark's analysis is needed; before, `kdi check` asked the cluster for executors.
    Procedure: `kdi check` in a process of its own, with YARN as Spark's master, and nothing that says where YARN is.
    """
    (tmp_path / "defs.yaml").write_text(STREAMS)
    variables = {name: value for name, value in os.environ.items() if name not in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}
    command: list[str | Path] = [Path(sys.executable).with_name("kdi"), "--defs", tmp_path, "check"]

    ran = subprocess.run(
        command,
        env={**variables, "KDI_SPARK_MASTER": "yarn", "KDI_DRIVER": "own"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (ran.returncode, ran.stdout) == (0, "streams: 1, mistakes: 0\n"), ran.stderr


def test_the_tables_of_many_topics_are_analysed_once_and_a_mistake_that_they_share_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "table: 'many/{topic}', schema: 'id bigint, at string', date: to_date(att)"
    exceptions = "exceptions: {t0: {date: to_date(at)}, t1: {schema: 'id bigint, att string'}}"
    topics = ", ".join(f"t{number}" for number in range(40))
    many = f"{TOPIC_TABLES}\nattributes: {{name: many, topics: [{topics}], {shared}, {exceptions}}}\n"
    analysed: list[str] = []

    def counting(stream: Stream, spark: SparkSession) -> StructType:
        analysed.append(stream.topic)
        return analyse(stream, spark)

    monkeypatch.setattr(shared_analysis, "analyse", counting)

    result = checked(tmp_path, STREAMS.partition("---")[0] + "---\n" + many)

    assert result.exit_code == 1
    (mistake, summary) = result.stdout.splitlines()
    assert "defs.yaml:5 date: " in mistake and "`att`" in mistake
    assert "(topics t2, t3, t4 and 35 more); Spark SQL over the fields of `schema`" in mistake
    assert summary == "streams: 40, mistakes: 1"
    # t2 twice: with its date, and for the mistakes that the other fields may have besides
    assert analysed == ["t0", "t1", "t2", "t2"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("reflect('java.lang.System', 'getenv', 'HOME')", "it gives something else each time"),
        ("concat(java_method('java.lang.System', 'getenv', 'HOME'), '')", "it gives something else each time"),
        ("(SELECT max(value) FROM text.`SECRETS`)", "a subquery reads other data"),
        ("if(EXISTS (SELECT * FROM text.`SECRETS` WHERE value = url), 'a', 'b')", "a subquery reads other data"),
    ],
)
def test_an_expression_reaches_neither_java_nor_other_files(tmp_path: Path, call: str, said: str) -> None:
    (tmp_path / "secrets.txt").write_text("hunter2\n")
    call = call.replace("SECRETS", str(tmp_path / "secrets.txt"))

    result = checked(tmp_path, STREAMS.replace("\"parse_url(url, 'HOST')\"", f'"{call}"'))

    assert result.exit_code == 1
    assert f"defs.yaml:10 columns.host: {said}" in result.stdout


@pytest.mark.core
@pytest.mark.parametrize(
    ("right", "wrong", "line", "field", "said"),
    [
        ("url string", "url strng", 8, "schema", "STRNG"),
        ("(url, 'HOST')", "(ulr, 'HOST')", 10, "columns.host", "`ulr` cannot be resolved"),
        ("to_date(at)", "to_date(", 12, "date", "PARSE_SYNTAX_ERROR"),
        ("to_date(at)", "to_date(at)\n  coordinates: id", 13, "coordinates", "id is a column already"),
        ("to_date(at)", "to_date(at)\n  filter: idd > 1", 13, "filter", "`idd` cannot be resolved"),
        ("to_date(at)", "to_date(at)\n  expectations: {named: {sql: url}}", 13, "expectations.named", "gives string"),
        ("to_date(at)", "to_date(at)\n  mask: {urll: drop}", 13, "mask.urll", "the table has no such column"),
        ("to_date(at)", "to_date(at)\n  mask: {url.x: drop}", 13, "mask.url.x", "url is not a struct"),
        (
            "to_date(at)",
            "to_date(at)\n  compression: gzip\n  mask: {url: null}\n  dead_letter_payload: mask",
            15,
            "dead_letter_payload",
            "masked fields can be found only in messages of plain JSON; withhold, or keep if",
        ),
        (
            "to_date(at)",
            "to_date(at)\n  mask: {user: null, user.name: drop}",
            13,
            "mask.user",
            "mask.user.name lies in",
        ),
        ("to_date(at)", "to_date(at)\n  filter: rand() < 0.1", 13, "filter", "something else each time"),
        ("to_date(at)", "to_date(at)\n  filter: kafka.timestamp < now()", 13, "filter", "it asks the clock"),
        ("to_date(at)", "to_date(at)\n  filter: id", 13, "filter", "it gives bigint; a condition is true or false"),
    ],
)
def test_a_wrong_expression_has_its_line(
    tmp_path: Path, right: str, wrong: str, line: int, field: str, said: str
) -> None:
    result = checked(tmp_path, STREAMS.replace(right, wrong))

    mistake, summary = result.stdout.splitlines()
    assert mistake.startswith(f"{tmp_path}/defs.yaml:{line} {field}: ")
    assert said in mistake
    assert (result.exit_code, summary) == (1, "streams: 1, mistakes: 1")


ROUTES = "".join(
    f"""---
type: kdi_assets.components.TopicTable
attributes:
  topic: shop
  table: bronze/{table}
  schema: "kind string, at timestamp"
  date: "to_date(at)"
  route: {route}
"""
    for table, route in {"orders": """{when: "kind = 'order'"}""", "clicks": "{rest: rows}"}.items()
)


def test_a_wrong_route_condition_is_named_once_in_its_own_document(tmp_path: Path) -> None:
    cluster = "---\ntype: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: 'k:9092'}\n"

    right = checked(tmp_path, ROUTES + cluster)
    wrong = checked(tmp_path, ROUTES.replace("kind = 'order'", "kidn = 'order'") + cluster)

    assert right.stdout == "streams: 2, mistakes: 0\n"
    mistake, summary = wrong.stdout.splitlines()
    assert mistake.startswith(f"{tmp_path}/defs.yaml:8 route.when: ")
    assert "`kidn` cannot be resolved" in mistake
    assert (wrong.exit_code, summary) == (1, "streams: 2, mistakes: 1")


def test_a_mask_is_checked_without_its_secret(tmp_path: Path) -> None:
    masks = "to_date(at)\n  mask: {url: {hash: {env: NOT_SET_ANYWHERE}}, id: null, host: {keep_last: 3}}"

    assert checked(tmp_path, STREAMS.replace("to_date(at)", masks)).stdout == "streams: 1, mistakes: 0\n"


REGISTRY = "---\ntype: kdi_assets.components.SchemaRegistry\nattributes: {{name: main, url: {}}}\n"
OF_REGISTRY = """---
type: kdi_assets.components.TopicTable
attributes:
  topic: {}
  table: bronze/{}
  format: {{json: {{registry: main{}}}}}
  date: current_date()
"""


def test_what_a_registry_does_not_have_is_a_mistake_of_its_document(tmp_path: Path, registry: RunningRegistry) -> None:
    for topic, schema in {"a": '{"properties": {"x": {"type": "string"}}}', "b": '{"properties": {"x": {}}}'}.items():
        registry.register(f"{topic}-value", schema, type="JSON")
    registry.register("c-value", '"string"')
    of_registry = [("a", ""), ("a", ", version: 9"), ("a", ", subject: nobody"), ("b", ""), ("c", "")]
    documents = [OF_REGISTRY.format(t, f"{t}{n}", more) for n, (t, more) in enumerate(of_registry)]
    text = STREAMS.replace("parse_url(url, 'HOST')", "parse_ulr(url)") + REGISTRY.format(registry.url)

    result = checked(tmp_path, text + "".join(documents))

    *mistakes, summary = [line.removeprefix(f"{tmp_path}/defs.yaml:") for line in result.stdout.splitlines()]
    assert (result.exit_code, summary) == (1, "streams: 6, mistakes: 5")
    for said, expected in zip(
        mistakes,
        [
            "10 columns.host: ",
            "28 format.json.version: registry main has no version 9 of a-value; an existing version, or none for the",
            "35 format.json.subject: registry main has no subject nobody; the subject of the schemas",
            "39 fields.x: cannot be a column: #/properties/x has no type; add fields: {x: drop} to leave it out",
            "49 format.json.registry: version 1 of c-value is a schema of the type AVRO, not JSON; a JSON Schema of",
        ],
        strict=True,
    ):
        assert said.startswith(expected)


def test_a_registry_that_is_down_is_one_line_beside_mistakes(tmp_path: Path, registry: RunningRegistry) -> None:
    registry.stop()
    documents = "".join(OF_REGISTRY.format(topic, topic, "") for topic in "ab")
    right = STREAMS + REGISTRY.format(registry.url) + documents

    passing = checked(tmp_path, right)
    wrong = checked(tmp_path, right.replace("to_date(at)", "to_date(att)"))
    as_json = json.loads(checked(tmp_path, right, "--json").stdout)

    assert (passing.exit_code, passing.stderr.count("registry main: no answer from")) == (75, 1)
    assert passing.stdout == "streams: 3, mistakes: 0, not checked, a registry or the lake did not answer: 2\n"
    assert (wrong.exit_code, wrong.stderr.count("registry main: no answer from")) == (1, 1)
    assert f"{tmp_path}/defs.yaml:12 date: " in wrong.stdout
    assert as_json["unchecked"] == ["bronze/a", "bronze/b"]
    assert [(e["type"], e["retry_helps"]) for e in as_json["errors"]] == [("RegistryUnavailable", True)]


def test_no_internal_column_and_no_stack_of_the_jvm_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = checked(tmp_path, STREAMS.replace("(url, 'HOST')", "(kdi_parse, 'HOST')").replace("id bigint, ", ""))

    assert "Did you mean one of the following? [`at`, `kafka`, `url`, `user`]." in result.stdout
    assert "_kdi_" not in result.stdout
    assert "kdi_parse" not in result.stderr + capfd.readouterr().err


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("kafka.timestamp", "kinesis.timestamp"),
        ("upper(CAST(Kafka.key AS STRING))", "kinesis.partition_key"),
        ("kafka.headers", "one of kinesis.stream, kinesis.shard_id, "),
    ],
)
def test_what_only_kafka_says_of_a_message_is_refused_for_a_stream_of_kinesis(
    tmp_path: Path, written: str, instead: str
) -> None:
    result = checked(tmp_path, OF_KINESIS.format(written))

    assert result.exit_code == 1
    assert f"{tmp_path}/defs.yaml:9 columns.made: " in result.stdout
    assert f"is of another kind of source than the stream's; write {instead}" in result.stdout


def test_what_only_kinesis_says_of_a_record_is_refused_for_a_topic_of_kafka(tmp_path: Path) -> None:
    result = checked(tmp_path, STREAMS.replace("to_date(at)", "to_date(kinesis.timestamp)"))

    assert "defs.yaml:12 date: kinesis.timestamp is of another kind of source" in result.stdout
    assert result.stdout.splitlines()[0].endswith("; write kafka.timestamp")


def test_every_wrong_expression_of_a_stream_is_found_and_mistakes_of_other_documents_too(tmp_path: Path) -> None:
    text = STREAMS.replace("parse_url", "parse_ulr").replace("to_date(", "to_dat(")
    other = "---\ntype: kdi_assets.components.TopicTable\nattributes: {topic: x}\n"

    result = checked(tmp_path, text + other, "--json")

    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(m["line"], m["field"]) for m in found["mistakes"]] == [
        (10, "columns.host"),
        (11, "columns.path"),
        (12, "date"),
        (15, "date"),
        (15, "schema"),
        (15, "table"),
    ]
    assert found["streams"] == [{"stream": "bronze/orders", "file": f"{tmp_path}/defs.yaml", "line": 4}]
