"""The documents of Kinesis: a connection, and the stream of a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kdi_assets.components.names import topic_key
from kdi_assets.documents.loading.loader import load_folder, load_streams
from kdi_assets.documents.model.connections.kinesis import FanOut, KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.kinesis.shards import id_of
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, mistakes_of, written

CONNECTION = "type: kdi_assets.components.KinesisConnection\nattributes: {name: eu, region: eu-central-1}\n"


def table(fields: str = "", *, stream: str = "stream_name: web-requests, connection: eu") -> str:
    """A document of a table; ``fields`` are further ones, each after a comma."""
    attributes = f"{stream}, table: bronze/web, schema: id bigint, date: current_date(){fields}"
    return f"type: kdi_assets.components.KinesisTable\nattributes: {{{attributes}}}\n"


def only(folder: Path, text: str) -> Stream:
    (found,) = load_streams(written(folder, all=CONNECTION + "---\n" + text)).values()
    return found


def test_the_example_makes_of_a_stream_of_kinesis_the_tables_that_the_demo_makes_of_a_topic() -> None:
    example, demo = load_folder(CHECKOUT / "examples" / "kinesis"), load_folder(CHECKOUT / "kdi_assets" / "defs")

    assert (example.refined, example.served) == (demo.refined, demo.served)
    (stream,), (of_topic,) = example.streams.values(), demo.streams.values()
    assert isinstance(stream, KinesisStream)
    assert (stream.table, stream.record_ddl, stream.columns) == (of_topic.table, of_topic.record_ddl, of_topic.columns)


def test_a_document_of_kinesis_is_a_stream_whose_shards_are_topic_partitions(tmp_path: Path) -> None:
    found = only(tmp_path, table(", max_records: 1000, consumer: {mode: polling}"))

    assert (found.topic, found.name, found.app_id) == ("web-requests", "bronze/web", "web-requests")
    assert found.cluster == KinesisRegion("eu", "eu-central-1")
    assert (found.max_records, found.tombstones, found.route) == (1000, "skip", None)
    assert topic_key(found.cluster, found.topic).path == ["kinesis", "eu", "web-requests"]
    assert (found.coordinates, found.source_struct.name) == ("kinesis", "kinesis")


@pytest.mark.parametrize(
    ("consumer", "fan_out"),
    [
        ("{mode: polling}", None),
        ("{mode: efo}", FanOut("kdi_web-requests", is_ours=True)),
        ("{mode: efo, deregister: after_drain}", FanOut("kdi_web-requests", is_ours=True, deregisters=True)),
        ("{mode: efo, registered: analytics}", FanOut("analytics", is_ours=False)),
    ],
)
def test_a_table_names_its_consumer(tmp_path: Path, consumer: str, fan_out: FanOut | None) -> None:
    found = only(tmp_path, table(f", consumer: {consumer}"))

    assert isinstance(found, KinesisStream)
    assert found.fan_out == fan_out


@pytest.mark.parametrize(
    ("written_as", "start"),
    [
        ("earliest", "earliest"),
        ("trim_horizon", "earliest"),
        ("latest", "latest"),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_start_is_a_word_or_a_time(tmp_path: Path, written_as: str, start: object) -> None:
    assert only(tmp_path, table(f", start: {written_as}")).start == start


def test_a_start_is_the_checkpoint_of_each_shard(tmp_path: Path) -> None:
    last = "4" * 56
    words = f"{id_of(1)}: '{last}', {id_of(2)}: TRIM_HORIZON, {id_of(3)}: SHARD_END, {id_of(4)}: earliest"

    found = only(tmp_path, table(f", start: {{{id_of(0)}: {last}, {words}}}"))

    after = {0: last, 1: last, 2: "trim_horizon", 3: "shard_end", 4: "trim_horizon"}
    assert found.start == {id_of(shard): at for shard, at in after.items()}
    assert found.start_offsets == {}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (table(", start: {0: 12}"), "start: {0: 12} is not a shard and the sequence number of the last record"),
        (table(f", start: {{{id_of(0)}: latest}}"), f"start: {{{id_of(0)}: latest}} is not a shard and the sequence"),
        (table(", start: soon"), "start: 'soon' does not say where to begin"),
        (table(", tombstones: row"), "tombstones: every record of Kinesis has data; remove the line"),
        (table(", route: {when: id > 1}"), "route: is not supported for a stream of Kinesis yet"),
        (table(", announce: {topic: files}"), "announce: is not supported for a stream of Kinesis"),
        (table(", consumer: {mode: push}"), "consumer.mode: takes polling or efo, not 'push'"),
        (
            table(", consumer: {registered: a}"),
            "consumer.registered: is given, and no consumer; give mode: efo as well",
        ),
        (table(", consumer: {deregister: after_drain}"), "consumer.deregister: is given, and no consumer"),
        (
            table(", consumer: {mode: efo, registered: a, deregister: after_drain}"),
            "consumer.deregister: a consumer that you registered stays; remove the line",
        ),
        (table(", consumer: {mode: efo, registered: a/b}"), "consumer.registered: 'a/b' is neither the name nor the"),
        (table(", app_id: web requests, consumer: {mode: efo}"), "app_id: 'kdi_web requests' is not a name that"),
        (table(", topic: x"), "topic: no such field"),
        (table(", cluster: main"), "cluster: no such field"),
        (table(stream="stream_name: web/requests, connection: eu"), "stream_name: 'web/requests' is not a stream's"),
        (table(stream="stream_name: web, connection: us"), "connection: no KinesisConnection document is named 'us'"),
        (table(stream="connection: eu"), "stream_name: is missing; e.g. stream_name: web_requests"),
        (table(stream="stream_name: web"), "connection: is missing; e.g. connection: main"),
        (table(", strat: latest"), "strat: no such field; did you mean start?"),
    ],
)
def test_a_mistake_has_the_line_of_its_field(tmp_path: Path, document: str, said: str) -> None:
    (mistake,) = mistakes_of(written(tmp_path, a=CONNECTION, b=document))

    assert mistake.startswith(f"b/defs.yaml:2 {said}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("{name: eu, region: Frankfurt}", "region: 'Frankfurt' is not a region of AWS; e.g. eu-central-1"),
        ("{name: eu}", "region: is missing; e.g. region: eu-central-1"),
        ("{name: eu, region: eu-central-1, endpoint: kinesis}", "endpoint: 'kinesis' is not the address of an"),
        ("{name: eu, region: eu-central-1, access_key: AKIA}", "access_key: no such field"),
        ("{name: eu, region: eu-central-1, role_arn: kdi}", "role_arn: 'kdi' is not the ARN of a role"),
        ("{name: eu, region: eu-central-1, sts_endpoint: https://sts}", "sts_endpoint: is given, and no role"),
    ],
)
def test_a_wrong_connection_is_the_only_mistake_of_its_streams(tmp_path: Path, fields: str, said: str) -> None:
    connection = f"type: kdi_assets.components.KinesisConnection\nattributes: {fields}\n"

    (mistake,) = mistakes_of(written(tmp_path, a=connection, b=table()))

    assert mistake.startswith(f"a/defs.yaml:2 {said}")


@pytest.mark.parametrize(
    "of_second",
    [
        ", app_id: other, consumer: {mode: efo}",
        ", consumer: {mode: efo, registered: analytics}",
        ", consumer: {mode: polling}",
    ],
)
def test_tables_of_one_stream_register_a_consumer_each(tmp_path: Path, of_second: str) -> None:
    efo = ", consumer: {mode: efo}"
    first, second = table(efo), table(efo).replace("bronze/web", "bronze/late")

    (mistake,) = mistakes_of(written(tmp_path / "same", a=CONNECTION, b=first, c=second))
    other = table(of_second).replace("bronze/web", "bronze/late")
    of_another = table(efo, stream="stream_name: clicks, connection: eu, app_id: web-requests")
    of_another = of_another.replace("bronze/web", "bronze/clicks")
    folder = written(tmp_path / "differ", a=CONNECTION, b=first, c=other, d=of_another)

    assert "c/defs.yaml:2 consumer: kdi_web-requests is the consumer of" in mistake
    assert mistake.endswith(
        "b/defs.yaml:2 already; another app_id if the table is new, or registered: a consumer of your own"
    )
    assert len(load_streams(folder)) == 3


@pytest.mark.parametrize(("second", "same"), [("", True), (", role_arn: 'arn:aws:iam::123456789012:role/kdi'", False)])
def test_two_connections_to_one_region_lead_to_the_same_streams_unless_a_role_is_of_another_account(
    tmp_path: Path, second: str, same: bool
) -> None:
    efo = ", consumer: {mode: efo}"
    late = table(efo, stream="stream_name: web-requests, connection: late").replace("bronze/web", "bronze/late")
    another = CONNECTION.replace("name: eu", f"name: late{second}")
    folder = written(tmp_path, a=CONNECTION, b=table(efo), c=another, d=late)

    if same:
        (mistake,) = mistakes_of(folder)
        assert "d/defs.yaml:2 consumer: kdi_web-requests is the consumer of" in mistake
    else:
        assert len(load_streams(folder)) == 2


def test_a_connection_and_a_cluster_have_different_names(tmp_path: Path) -> None:
    connection = CONNECTION.replace("name: eu", "name: main")

    (mistake,) = mistakes_of(written(tmp_path, a=connection, b=CLUSTER))

    assert mistake.endswith("b/defs.yaml:2 has the name 'main'; rename one of the two")


def test_what_only_kafka_has_is_not_asked_of_a_stream_of_kinesis(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="bronze/web is not fed by Kafka"):
        _ = only(tmp_path, table()).kafka
