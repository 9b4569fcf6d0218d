"""Topic, table and Dagster together: a real broker, real Spark, a real instance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import partial
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.observe import observe
from deltalake import DeltaTable

from kdi_assets.components.dead_letters_asset import letters_asset
from kdi_assets.components.names import check_key, letters_key, table_key, topic_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.components.topics import topic_assets
from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.stream import Cluster, DrainWhen, Stream
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.lag import lag_sensor
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.conftest import TopicFactory
from tests.dagster.fakes import Selected, assets_of, events, materialize, tick, today, yesterday
from tests.driven import web_requests
from tests.kafka_log import Publisher
from tests.predecessor.table import COORDINATES, MICROS, PredecessorTable

pytestmark = pytest.mark.usefixtures("lake_in_environment", "one_jvm")

OLD = date(2021, 3, 4)
TEXTS = {"session_id": "s", "url": "https://a.b/", "uuid": "u"}
DEFINITION: dict[str, Any] = {
    "record_ddl": "id bigint, day string, place struct<city: string>",
    "date_expression": "to_date(day)",
    "drain_when": DrainWhen(backlog_messages=5, lag_seconds=3600),
}


@pytest.fixture
def stream(topic: TopicFactory, cluster: Cluster) -> Stream:
    name = topic(2)
    return Stream(topic=name, table=f"bronze/{name}", cluster=cluster, **DEFINITION)


def publish(producer: Publisher, stream: Stream, days: dict[date, int]) -> None:
    """One message per row, over both topic partitions, with the day in the message."""
    for day, count in days.items():
        for number in range(count):
            value = json.dumps({"id": number, "day": day.isoformat(), "place": {"city": "Bern"}})
            producer.produce(stream.topic, value, partition=number % 2)
    producer.flush()


def definitions(*streams: Stream, at: Callable[[str], None] = lambda point: None) -> dg.Definitions:
    """The code location of these streams; ``at`` is called at the points of their drains."""
    tables = [table_asset(s, drain=partial(drain, at=at), audit=audit) for s in streams]
    letters = [letters_asset(s, replay=partial(replay_letters, at=at)) for s in streams]
    return dg.Definitions(
        assets=[*tables, *letters, *topic_assets(streams)],
        sensors=[lag_sensor("main", streams, read_backlogs=read_backlogs)],
        resources={"spark": SparkResource()},
        executor=dg.in_process_executor,
    )


def drained(instance: DagsterInstance, defs: dg.Definitions, *selected: Selected) -> dg.ExecuteInProcessResult:
    """A run of today, as `dagster asset materialize` or a sensor starts it."""
    return materialize(instance, assets_of(defs), *selected, day=today())


def ticked(instance: DagsterInstance, defs: dg.Definitions) -> dg.SensorExecutionData:
    """One tick of the sensor, its events stored as the daemon stores them."""
    data = tick(instance, defs)
    for event in data.asset_events:
        instance.report_runless_asset_event(event)
    return data


class Crash(Exception):
    pass


def die_after_the_commit(point: str) -> None:
    if point == "commit sent":
        raise Crash


@pytest.mark.core
def test_a_run_materializes_every_date_it_touched_and_tells_what_lies_there(
    instance: DagsterInstance, stream: Stream, producer: Publisher, lake: str
) -> None:
    publish(producer, stream, {OLD: 6, yesterday(): 4})
    defs = definitions(stream)

    checks = [check_key(stream, name) for name in stream.check_names]
    first = drained(instance, defs, table_key(stream), *checks)
    told = events(instance, table_key(stream))

    assert first.success
    assert told.keys() == {OLD.isoformat(), yesterday().isoformat()}, "today got no rows and is not materialized"
    of_old = told[OLD.isoformat()]
    assert (of_old["rows_added"], of_old["dagster/partition_row_count"]) == (6, 6)
    assert of_old["commit"].startswith("10 rows on 2 dates, ")
    assert of_old["dagster/uri"] == f"{lake}/{stream.table}"
    types = {column.name: column.type for column in of_old["dagster/column_schema"].columns}
    assert types.items() >= {"id": "bigint", "place": "struct<city: string>", "date": "date"}.items()
    made = {check.check_name: check for check in first.get_asset_check_evaluations()}
    assert len(made) == 8 and all(check.passed for check in made.values())
    assert made["every_offset_accounted_for"].metadata["offsets"].value == 10

    publish(producer, stream, {OLD: 1, today(): 2})
    drained(instance, defs, table_key(stream))

    told = events(instance, table_key(stream))
    assert told.keys() == {OLD.isoformat(), yesterday().isoformat(), today().isoformat()}
    assert (told[OLD.isoformat()]["rows_added"], told[OLD.isoformat()]["dagster/partition_row_count"]) == (1, 7)


@pytest.mark.core
@pytest.mark.scenario("killed after the commit, before Dagster's event")
def test_dates_that_a_crash_left_untold_are_told_at_the_next_tick(
    instance: DagsterInstance, stream: Stream, producer: Publisher
) -> None:
    publish(producer, stream, {OLD: 6, yesterday(): 4})

    crashed = drained(instance, definitions(stream, at=die_after_the_commit), table_key(stream))
    before = events(instance, table_key(stream))
    failed = dg.AssetCheckEvaluation(table_key(stream), "every_offset_accounted_for", passed=False)
    instance.report_runless_asset_event(failed)
    data = ticked(instance, definitions(stream))
    after = events(instance, table_key(stream))
    ticked(instance, definitions(stream))

    assert not crashed.success and before == {}
    assert after.keys() == {OLD.isoformat(), yesterday().isoformat()}
    assert after[OLD.isoformat()]["drained_by"] == crashed.run_id
    assert not data.run_requests, "the rows are in the table: nothing is left to drain"
    assert [type(event) for event in data.asset_events[:3]] == [
        dg.AssetCheckEvaluation,
        *[dg.AssetMaterialization] * 2,
    ], "a failed audit stands, and is told again before what would outdate it"
    assert len(instance.fetch_materializations(table_key(stream), limit=100).records) == 2, "told once"


@pytest.mark.scenario("killed after the commit, before Dagster's event")
def test_letters_are_told_by_their_timestamps_and_a_date_of_them_is_replayed_alone(
    instance: DagsterInstance, stream: Stream, producer: Publisher
) -> None:
    """Procedure: a wrong expression rejects messages of two days and accepts those of a third; it is corrected, and one
    of the days is replayed, killed after the commit; the next tick reports for both assets what the run did not.
    """
    wrong = replace(stream, date_expression="to_date(concat(day, '?'))", dead_letter_limit=DeadLetterLimit(share=1.0))
    for number, sent in enumerate([yesterday()] * 4 + [today()] * 3):
        value = json.dumps({"id": number, "day": OLD.isoformat()}) if number else "no JSON"
        at = datetime.combine(sent, time(0, 0, 1), UTC)
        producer.produce(stream.topic, value, partition=number % 2, timestamp=at)
    producer.flush()

    first = drained(instance, definitions(wrong), table_key(stream))
    written = {day: event["letters_written"] for day, event in events(instance, letters_key(stream)).items()}
    assets = assets_of(definitions(stream, at=die_after_the_commit))
    crashed = materialize(instance, assets, letters_key(stream), day=yesterday())
    of_rows = events(instance, table_key(stream))
    ticked(instance, definitions(stream))
    told_late = [events(instance, key) for key in (table_key(stream), letters_key(stream))]

    assert first.success and not crashed.success
    assert written == {yesterday().isoformat(): 4, today().isoformat(): 3}
    assert of_rows == {}
    rows, letters = told_late
    assert rows.keys() == {OLD.isoformat()} and rows[OLD.isoformat()]["rows_added"] == 3
    assert letters[yesterday().isoformat()]["letters_judged"] == 3, "of one letter nothing new was said"
    assert rows[OLD.isoformat()]["logged_by"] == letters[yesterday().isoformat()]["logged_by"] == "reconcile"


def test_a_stream_is_requested_before_it_has_a_backlog_so_that_its_start_is_committed(
    instance: DagsterInstance, topic: TopicFactory, cluster: Cluster, producer: Publisher
) -> None:
    """Until a run commits it, `latest` would move on with every message."""
    name = topic(2)
    stream = Stream(topic=name, table=f"bronze/{name}", cluster=cluster, start="latest", **DEFINITION)
    publish(producer, stream, {OLD: 2})
    defs = definitions(stream)

    (request,) = ticked(instance, defs).run_requests or []
    drained(instance, defs, *(request.asset_selection or []))
    publish(producer, stream, {yesterday(): 1})
    drained(instance, defs, table_key(stream))

    assert events(instance, table_key(stream)).keys() == {yesterday().isoformat()}


def test_a_topic_is_observed_and_changes_its_data_version_when_a_message_arrives(
    instance: DagsterInstance, stream: Stream, producer: Publisher
) -> None:
    (asset,) = topic_assets([stream])
    for messages in (0, 0, 3):
        publish(producer, stream, {today(): messages})
        assert observe([asset], instance=instance).success

    records = instance.fetch_observations(topic_key(stream.kafka, stream.topic), limit=10, ascending=True).records
    first, second, third = [record.asset_observation for record in records]

    assert first is not None and second is not None and third is not None
    assert first.tags["dagster/data_version"] == second.tags["dagster/data_version"]
    assert second.tags["dagster/data_version"] != third.tags["dagster/data_version"]
    assert third.metadata["end_offsets"].value == {f"{stream.topic}/0": 2, f"{stream.topic}/1": 1}
    assert third.metadata["offsets_kept"].value == third.metadata[f"backlog of {stream.name}"].value == 3


@pytest.mark.parametrize(
    ("coordinates", "partitioned_by", "kept"),
    [
        pytest.param({**COORDINATES, "timestamp": MICROS}, ("date",), 0, id="four coordinates"),
        pytest.param(COORDINATES, ("date", "method"), 2, id="three coordinates, by method, checkpointed"),
    ],
)
def test_a_table_of_kafka_delta_ingest_has_its_dates_in_dagster_and_one_is_replayed(
    coordinates: dict[str, Any], partitioned_by: tuple[str, ...], kept: int,
    instance: DagsterInstance, topic: TopicFactory, cluster: Cluster, producer: Publisher, lake: str,
) -> None:  # fmt: skip
    """Its dates are text. Procedure: it leaves two rows of an old date; a run drains three; a run replays that date.
    Pass: events, counts and rows of each date; without timestamps, the replay leaves the two rows as they are.
    """
    stream = web_requests(topic(1), cluster, app_id="kdi", columns={})
    table = PredecessorTable(stream.table_uri(lake), coordinates=coordinates, partitioned_by=partitioned_by)
    messages = [
        json.dumps({"meta": {"producer": {"timestamp": f"{day}T12:00:00Z"}}, "method": "GET", "status": 200, **TEXTS})
        for day in (OLD, OLD, OLD, yesterday(), yesterday())
    ]
    produced = producer.produce_all(stream.topic, messages, partition=0)
    table.create()
    table.ingest(1, produced[:2])
    if kept:
        table.checkpoint()
    defs = definitions(stream)

    first = drained(instance, defs, table_key(stream), *(check_key(stream, name) for name in stream.check_names))
    told = events(instance, table_key(stream))

    assert first.success and all(check.passed for check in first.get_asset_check_evaluations())
    assert told.keys() == {OLD.isoformat(), yesterday().isoformat()}
    rows = {day: (of["rows_added"], of["dagster/partition_row_count"]) for day, of in told.items()}
    assert rows == {OLD.isoformat(): (1, 3), yesterday().isoformat(): (2, 2)}

    louder = definitions(replace(stream, columns={"method": "'PUT'"}))
    again = materialize(instance, assets_of(louder), table_key(stream), day=OLD)

    assert again.success
    of_old = events(instance, table_key(stream))[OLD.isoformat()]
    assert of_old["dagster/partition_row_count"] == 3
    found = DeltaTable(table.uri).to_pyarrow_table().to_pylist()
    assert Counter((row["date"], row["method"]) for row in found) == Counter(
        {(OLD.isoformat(), "PUT"): 3 - kept, (OLD.isoformat(), "GET"): kept, (yesterday().isoformat(), "GET"): 2}
    )
