"""`kdi import-kdi`: command lines of kafka-delta-ingest become documents that load, or the reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.loading.loader import read_streams
from kdi_assets.tools.predecessor.cluster_fields import PropertyValue, cluster_fields
from kdi_assets.tools.predecessor.command import Given
from kdi_assets.tools.predecessor.message_fields import ddl_lines
from kdi_assets.tools.predecessor.transforms import translate_transforms
from tests.predecessor.calls import CALLS, WEB_REQUESTS, Call, columns_type, write_tables
from tests.typed import Kdi, typed

every_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kdi:
    """Runs `kdi import-kdi` in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KDI_LAKE", raising=False)
    (tmp_path / "defs").mkdir()
    return typed(monkeypatch, capsys, "import-kdi", "--defs", "defs")


def prepared(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(folder, call.table)
    for name, text in call.files.items():
        (folder / name).write_text(text)
    for name, value in call.variables.items():
        monkeypatch.setenv(name, value)


@every_call
def test_a_call_becomes_documents_that_load_or_a_named_reason(
    call: Call, kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(call, tmp_path, monkeypatch)

    shown = kdi(*call.words)
    files_of_a_dry_run = list((tmp_path / "defs").rglob("*"))
    written = kdi("--yes", *call.words)

    assert files_of_a_dry_run == []
    text = {path.parent.name: path.read_text() for path in (tmp_path / "defs").rglob("defs.yaml")}
    assert shown.code == written.code == (0 if call.stream else 1), shown.err
    assert [said for said in call.said if said not in shown.out + shown.err] == []
    stream = "\n".join(text.pop(name) for name in list(text) if name not in ("kafka", "registry"))
    wanted = [line.replace("HERE", str(tmp_path)) for line in call.stream]
    assert [line for line in wanted if line not in stream] == []
    assert [line for line in call.cluster if line not in "\n".join(text.values())] == []
    assert "hunter2" not in stream + "".join(text.values()) + shown.out + shown.err
    loaded = read_streams(tmp_path / "defs")
    assert (loaded.mistakes, len(loaded.streams)) == ([], 1 if call.stream else 0)


def test_the_takeover_begins_where_the_tables_log_says(kdi: Kdi, tmp_path: Path) -> None:
    write_tables(tmp_path, "default", *({"txn": {"appId": f"kdi-{p}", "version": at}} for p, at in ((0, 41), (3, 0))))
    call = ["--", "ingest", "t", "data/default", "-a", "kdi"]

    known = kdi(*call)
    other = kdi("--", "ingest", "t", "data/default")
    below = kdi(*call, "--seek_offsets", '{"0":41}')
    above = kdi(*call, "--seek_offsets", '{"0":42,"3":0}')

    assert (
        "it begins with the next offsets, t/0 at 42, t/3 at 1; other topic partitions by `start`: earliest" in known.out
    )
    assert "the log has no offsets of this app id, so it begins by `start`: earliest" in other.out
    assert (below.code, above.code) == (0, 1)
    assert "the table's positions are lower, and both programs refuse that: topic partition 0 is at 42" in above.err


def test_what_has_no_translation_is_named_by_option_and_place_and_nothing_is_written(kdi: Kdi, tmp_path: Path) -> None:
    write_tables(tmp_path, "web_requests")
    (tmp_path / "call.sh").write_text(
        "# a comment\nkafka-delta-ingest ingest t data/web_requests -t 'url: keys(@)' -t 'uuid: a..b' \\\n"
        " -t 'meta.producer.timestamp: to_string(meta)' \\\n"
        " -t 'status' -t 'method: kafka.key' -t 'session_id: items[?x]' -K sasl.mechanism=OAUTHBEARER \\\n"
        " -K 'ssl.key.location=/a/$B' --soe-avro nowhere -o middle -l soon\n"
    )

    answer = kdi("--command", "call.sh", "--yes")

    assert answer.code == 1
    for option, why in {
        "-t 'url: keys(@)'": "keys() has no translation (those of abs, ceil,",
        "-t 'uuid: a..b'": "is not JMESPath: Expecting:",
        "-t 'meta.producer.timestamp: to_string(meta)'": "the text of an object has all its fields",
        "-t status": "is not PROPERTY: SOURCE",
        "-t 'method: kafka.key'": "it reads the message's own field `kafka`",
        "-t 'session_id: items[?x]'": "`[?…]` filters an array; write it by hand as Spark SQL in `columns`",
        "-K sasl.mechanism=OAUTHBEARER": "OAUTHBEARER needs a token endpoint here",
        "-K ssl.key.location=/a/$B": "a variable is part of the value",
        "--soe-avro nowhere": "there is no such file here",
        "-o middle": "is neither earliest nor latest",
        "-l soon": "is not a number",
    }.items():
        assert f"{option} (call.sh:2): {why}" in answer.err
    assert list((tmp_path / "defs").rglob("*")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a command line after --"),
        (["--", "ingest", "t"], "command line: table_location is missing"),
        (
            ["--", "ingest", "t", "data", "--applid", "x"],
            "argument 4: kafka-delta-ingest has no option --applid;",
        ),
        (["--", "ingest", "t", "data", "more"], "argument 4: 'more' is one argument too many"),
        (["--", "ingest", "t", "data", "-a"], "argument 4: -a has no value"),
        (["--", "ingest", "t", "data", "--json", "", "--avro", ""], "--avro and --json exclude each other"),
        (["--", "ingest", "t", "nowhere"], "there is no table at"),
        (["--command", "file"], "file: no call of kafka-delta-ingest is in it"),
        (["--env-file", "file"], "file:1: is not NAME=value"),
        (["--table-log", "file", "--", "ingest", "t", "data"], "file: no columns are in it"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_with_its_place(
    kdi: Kdi, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "file").write_text("nothing\n")

    answer = kdi(*words)

    assert answer.code == (1 if words else 2)
    assert said in " ".join(answer.err.split())


def test_a_cluster_that_a_document_describes_is_used_and_another_gets_a_name_of_its_own(
    kdi: Kdi, tmp_path: Path
) -> None:
    for table in ("default", "emails", "web_requests"):
        write_tables(tmp_path, table)
    of_broker = ["-k", "broker-7.example:9092"]

    answers = [
        kdi("--yes", "--", "ingest", "a", "data/default"),
        kdi("--yes", "--", "ingest", "b", "data/emails"),
        kdi("--yes", "--", "ingest", "c", "data/web_requests", *of_broker, "-t", WEB_REQUESTS[0]),
    ]
    again = kdi("--yes", "--", "ingest", "a", "data/default")

    assert [answer.code for answer in answers] == [0, 0, 0]
    loaded = read_streams(tmp_path / "defs")
    assert {name: stream.cluster.name for name, stream in loaded.streams.items()} == {
        "default": "main", "emails": "main", "web_requests": "broker-7",
    }  # fmt: skip
    assert again.code == 1
    assert "defs/default/defs.yaml exists already and stays as it is" in again.err


def test_a_table_that_does_not_lie_in_the_lake_is_not_imported(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path, "default")

    monkeypatch.setenv("KDI_LAKE", str(tmp_path))
    inside = kdi("--json", "--", "ingest", "a", "data/default")
    monkeypatch.setenv("KDI_LAKE", str(tmp_path / "lake"))
    outside = kdi("--json", "--", "ingest", "a", "data/default")

    (found,) = inside.objects
    assert (found["stream"], found["lake"], found["error"]) == ("data/default", str(tmp_path), None)
    assert outside.code == 1
    assert "does not lie below KDI_LAKE" in outside.objects[0]["error"]["happened"]


FOUR = {"offset": "long", "topic": "string", "partition": "integer", "timestamp": "timestamp"}
THREE = {"offset": "long", "topic": "string", "partition": "long"}


@pytest.mark.parametrize(
    ("kafka", "coordinates", "columns", "added"),
    [
        (FOUR, "meta.kafka", [], []),
        ({**FOUR, "timestamp": "long"}, "meta.kafka", [], []),
        (THREE, "meta.kafka", [], ["meta.kafka.timestamp"]),
        ({"offset": "long", "partition": "integer"}, "meta.kafka", [], ["meta.kafka.topic", "meta.kafka.timestamp"]),
        ({**FOUR, "offset": "string"}, "kafka", ["CAST(kafka.offset AS string)"], ["kafka"]),
        ({**FOUR, "timestamp": "string"}, "kafka", ["CAST(unix_micros(kafka.timestamp) AS string)"], ["kafka"]),
        ({**FOUR, "zone": "string"}, "kafka", ["kafka.timestamp"], ["kafka"]),
    ],
)
def test_the_struct_that_holds_the_coordinates_is_kept_and_otherwise_one_is_added(
    kafka: dict[str, str], coordinates: str, columns: list[str], added: list[str]
) -> None:
    table = columns_type({"meta": {"kafka": kafka}, "id": "long", "date": "string"})
    given = [Given("-t", f"meta.kafka.{name}: kafka.{name}", "") for name in kafka if name != "zone"]

    found = translate_transforms(given, table, explodes=False, of_schema=False)

    assert (found.coordinates, list(found.added)) == (coordinates, added)
    assert [sql for sql in columns if sql not in found.columns.values()] == []
    assert bool(found.columns) == bool(columns)


@pytest.mark.parametrize(
    ("source", "date", "declared"),
    [
        ("payload.day", "coalesce(payload.day, date)", "payload struct<day: string, born: date>"),
        ("at", "coalesce(at, date)", "at timestamp"),
        ("substr(at, `0`, `10`)", "substr(at, 1, 10)", "at string"),
        (
            "substr(epoch_millis_to_iso8601(ms), `0`, `10`)",
            "to_date(timestamp_millis(CAST(ms AS bigint)))",
            "ms double",
        ),
        ("epoch_micros_to_iso8601(at)", "to_date(timestamp_micros(at))", "at bigint"),
        ("kafka.timestamp", "", "it gives a time and no date"),
        ("id", "", "it gives bigint and no date"),
        ("payload", "coalesce(payload, date)", "payload is string elsewhere; convert it by hand"),
    ],
)
def test_a_text_of_any_form_may_give_the_date(source: str, date: str, declared: str) -> None:
    table = columns_type({"id": "long", "at": "timestamp", "born": "date", "date": "string"})

    given = [Given("-t", f"date: {source}", ""), Given("-t", "born: payload.born", "")]
    found = translate_transforms(given, table, explodes=False, of_schema=False)

    assert found.date == date
    said = [*ddl_lines(found.fields.record), *(note.here for note in found.notes)]
    assert declared in "\n".join(said)
    assert found.columns.get("born") == (None if source == "payload" else "coalesce(payload.born, born)")


PASSWORD = {"sasl.username": "kdi", "sasl.password": {"env": "P"}}


@pytest.mark.parametrize(
    ("properties", "attributes"),
    [
        ({}, {}),
        ({"security.protocol": "ssl"}, {"tls": True}),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.key.pem": {"env": "K"},
             "ssl.certificate.pem": {"env": "C"}},
            {"tls": {"ca": "/ca.pem", "key": {"env": "K"}, "certificate": {"env": "C"}}},
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-256", **PASSWORD},
            {"tls": False, "sasl": {"mechanism": "SCRAM-SHA-256", "username": "kdi", "password": {"env": "P"}}},
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
             "sasl.oauthbearer.token.endpoint.url": "https://l/t", "sasl.oauthbearer.client.id": "kdi",
             "sasl.oauthbearer.client.secret": {"env": "S"}, "metadata.max.age.ms": "180000"},
            {"sasl": {"mechanism": "OAUTHBEARER", "token_endpoint": "https://l/t", "client_id": "kdi",
                      "client_secret": {"env": "S"}},
             "properties": {"metadata.max.age.ms": "180000"}},
        ),
    ],
)  # fmt: skip
def test_a_connection_becomes_fields(properties: dict[str, PropertyValue], attributes: dict[str, Any]) -> None:
    assert cluster_fields("b:9092", properties) == {"bootstrap_servers": "b:9092", **attributes}


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.ca.location": "/ca.pem"},  # nothing says that the connection uses TLS
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.username": "kdi"},
        {"security.protocol": "SASL_SSL", **PASSWORD},
        {"security.protocol": "SSL", "ssl.keystore.location": "/client.p12"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/ca.pem", **PASSWORD},
    ],
    ids=str,
)
def test_a_connection_that_the_fields_cannot_say_stays_as_it_is(properties: dict[str, PropertyValue]) -> None:
    assert cluster_fields("b:9092", properties) == {"bootstrap_servers": "b:9092", "properties": properties}
