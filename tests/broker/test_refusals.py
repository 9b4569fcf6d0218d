"""What a drain refuses, including too many dead letters: the error is complete, nothing is written, and a decision lets
it continue.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.messages.kafka.errors import BrokerUnreachable, TopicMissing
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.errors import ReasonCount, TooManyDeadLetters
from kdi_assets.streams.drain.plan_errors import PositionBelowStart, StartOutOfRange
from kdi_assets.streams.rules.errors import SchemaDisagrees, ShapeMistake
from kdi_assets.streams.spark_errors import ReadOrWriteFailed
from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import web_requests_document
from tests.faults.topics import delete_records
from tests.typed import Kdi


def test_an_explicit_start_that_the_topic_does_not_hold_is_refused(driven: DrivenFactory) -> None:
    web = driven(partitions=1, start={0: 500})
    web.produce(10)

    with pytest.raises(StartOutOfRange, match=r"holds \[0, 10\)"):
        web.drain()

    assert not Path(web.uri).exists()


def test_explicit_offsets_are_applied_once_and_skip_later_only_by_decision(driven: DrivenFactory) -> None:
    """Procedure: a start in the middle of one of two topic partitions; drain; write higher offsets into the document;
    drain; accept that loss; drain.
    """
    web = driven(partitions=2, start={0: 4})
    web.produce(20, bad=0.2)
    begun = web.drain()
    produced = web.produce(20, bad=0.2, seed=1)
    further = web.with_definition(start={0: 15})
    first = web.tp()

    with pytest.raises(PositionBelowStart, match=r"\[10, 15\) was not drained") as refused:
        further.drain()
    assert isinstance(read_backlog(further.stream, web.lake).refusal, PositionBelowStart)
    assert f"kdi resolve {web.stream.name} accept-loss --topic-partition {first} --until 15" in str(refused.value)
    decision = further.decide("accept-loss", topic_partition=first, until=15)
    further.carry_out(decision)
    further.drain()

    assert begun.backlog_before == 6 + 10
    assert [(r.start, r.end) for r in decision.declared_losses] == [(10, 15)]
    web.assert_each_offset_once(
        [m for m in produced if m.topic_partition != first or 4 <= m.offset < 10 or 15 <= m.offset]
    )
    assert web.audit().complete


@pytest.mark.core
@pytest.mark.scenario("broker restarts, leaders move")
def test_a_missing_topic_and_a_silent_broker_are_said_and_nothing_is_written(
    driven: DrivenFactory, tmp_path: Path
) -> None:
    """Procedure: drain a topic that is not there; drain from an address where nobody listens."""
    web = driven()
    nowhere = replace(web.stream.kafka, bootstrap_servers="127.0.0.1:1")

    with pytest.raises(TopicMissing, match="no_such_topic"):
        web.with_definition(topic="no_such_topic").drain()
    with pytest.raises(BrokerUnreachable, match="127.0.0.1:1"):
        web.with_definition(cluster=nowhere).drain()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"record_ddl": "a int, b strin"}, "schema"),
        ({"record_ddl": "a int, A string"}, "fields.A"),
        ({"record_ddl": "a struct<`b c`: int>"}, "fields.a.`b c`"),
        ({"record_ddl": "a map<int, int>"}, "schema"),
        ({"record_ddl": "kafka int"}, "fields.kafka"),
        ({"columns": {"host": "parse_url(urll, 'HOST')"}}, "columns.host"),
        ({"date_expression": "to_date("}, "date"),
        ({"date_expression": "status"}, "date"),
        ({"columns": {"many": "explode(array(1, 2))"}}, "columns.many"),
        ({"columns": {"method.length": "1"}}, "columns.method.length"),
        ({"coordinates": "method"}, "coordinates"),
    ],
)
def test_a_wrong_document_is_said_by_field_and_nothing_is_written(
    driven: DrivenFactory, tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    web = driven(**fields)
    web.produce(1)

    with pytest.raises(ShapeMistake) as refused:
        web.drain()

    assert refused.value.field == field
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.scenario("schema changes between drains")
def test_a_table_with_other_columns_is_refused_with_every_difference(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(5)
    web.session().sql(f"CREATE TABLE delta.`{web.uri}` (status STRING, date DATE) USING delta")

    with pytest.raises(SchemaDisagrees) as refused:
        web.drain()

    assert "column status is string in the table and int in the stream" in refused.value.differences
    assert "column url is not in the table" in refused.value.differences
    assert any(d.startswith("the table is partitioned by nothing and not by date") for d in refused.value.differences)
    assert list(Path(web.uri).rglob("*.parquet")) == []


def test_a_property_that_delta_does_not_know_is_refused_before_there_is_a_table(driven: DrivenFactory) -> None:
    web = driven(properties={"delta.checkpointIntervall": "20"})

    with pytest.raises(ReadOrWriteFailed, match="checkpointIntervall"):
        web.drain()

    assert TableLog.open(web.uri) is None


GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
WORD = GOOD.replace("200", '"OK"')


@pytest.mark.core
def test_a_wrong_schema_stops_before_a_single_dead_letter_is_written(driven: DrivenFactory) -> None:
    """Procedure: a document that declares a number for a word; drain; correct the document; drain."""
    web = driven(partitions=2, record_ddl="meta struct<producer: struct<timestamp: string>>, url string, uuid int")
    produced = web.produce(250, tombstones=0.1)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    count = sum(m.value is not None for m in produced)
    assert (refused.value.dead_letters, refused.value.messages) == (count, count)
    assert refused.value.reasons == (ReasonCount("wrong_type", "uuid", count),)
    happened, _, run = refused.value.message_parts()
    assert f"{count} of {count} messages that should become rows would be dead letters (100.0%)" in happened
    assert f"{count} wrong_type in uuid" in happened
    assert f"; or kdi drain {web.stream.name} --accept-dead-letters   (this once)" in run
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None
    assert [e.kind for e in web.entries()] == ["start"]


def test_the_first_reasons_are_named_with_their_counts_and_the_rest_as_a_number(driven: DrivenFactory) -> None:
    web = driven(partitions=1, dead_letter_limit=DeadLetterLimit(share=0.1, count=2))
    bad = [WORD, WORD, WORD, "{", "{", "[1]", " ", GOOD + "x", GOOD.replace("2024", "1024"), '{"status":1}']
    web.send(GOOD, *bad, None)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    assert (refused.value.dead_letters, refused.value.messages) == (10, 11)
    assert refused.value.reasons[:2] == (ReasonCount("wrong_type", "status", 3), ReasonCount("malformed_json", "", 2))
    assert len(refused.value.reasons) == 5
    assert ", 2 others. The limit is more than 2 and more than 0.1 of them." in refused.value.message_parts()[0]
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_plans_within_the_limit_that_came_first_stay_committed_and_the_others_can_be_taken_once(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=1, max_records=5, dead_letter_limit=DeadLetterLimit(share=0.5, count=1))
    web.send(*[GOOD] * 5, *[WORD] * 5)

    with pytest.raises(TooManyDeadLetters):
        web.drain()
    first = web.entries()[-1].positions
    accepted = drain(web.stream, lake=web.lake, session=web.session, accept_dead_letters=True)
    web.send(*[WORD] * 4)
    with pytest.raises(TooManyDeadLetters):
        web.drain()

    assert (first, accepted.positions) == ({web.tp(): 5}, {web.tp(): 10})
    assert (len(web.found().rows), accepted.rows_added, accepted.dead_letters) == (5, 0, 5)
    assert web.audit().complete


def test_what_is_filtered_does_not_hide_that_nothing_else_became_a_row(driven: DrivenFactory) -> None:
    limit = DeadLetterLimit(share=0.5, count=2)
    web = driven(partitions=1, filter="kafka.offset >= 20", columns={"n": "CAST(url AS INT)"}, dead_letter_limit=limit)
    web.send(*[GOOD] * 23)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    assert refused.value.reasons == (ReasonCount("expression_failed", "columns.n", 3),)
    assert refused.value.messages == 3


def test_rows_that_a_restore_took_and_the_topic_no_longer_has_come_back_by_what_the_refusal_shows(
    driven: DrivenFactory, defs: Path, kdi: Kdi
) -> None:
    """Procedure: two drains; a RESTORE to the first; records of the second are deleted; plan; drain; plan; RESTORE to
    the version before the first one, as it is shown; drain.
    Pass: nothing is given up.
    """
    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    produced = web.produce(10, seed=1)
    web.drain()
    DeltaTable(web.uri).restore(1)
    delete_records(web, {0: 15})
    written(defs, web=web_requests_document(web.stream.topic))

    answers = [kdi("plan", web.stream.name), kdi("drain", web.stream.name), kdi("plan", web.stream.name)]
    for answer in answers:
        assert (answer.code, "[10, 15)" in answer.err, "TO VERSION AS OF VERSION" in answer.err) == (1, True, True)
    history = kdi("history", web.stream.name).out
    before = min(int(line.split()[0][1:]) for line in history.splitlines() if "RESTORE" in line) - 1
    web.session().sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {before}")
    web.drain()

    assert before == 2
    web.assert_each_offset_once(produced)
    assert web.audit().complete
