"""Tables and definitions of another time: an earlier release's table, a later release's entry, a changed document."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import NoReturn

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.look import look
from kdi_assets.drain.refusals import SchemaDisagrees, TopicRecreated
from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.ledger.entry import FORMAT, WrittenByNewerRelease
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.state import read_ledger
from kdi_assets.stream import KafkaCluster, TopicPartition
from tests.conftest import CHECKOUT, DrivenFactory, TopicFactory
from tests.data.make_release_table import MESSAGES, TOPIC, read_messages
from tests.driven import DrivenStream, web_requests
from tests.kafka_log import Publisher

scenario = pytest.mark.scenario
RELEASES = sorted(folder.name for folder in (CHECKOUT / "tests" / "data").glob("release_*"))


@pytest.mark.parametrize("release", RELEASES)
@scenario("table written by an earlier release")
def test_a_table_of_an_earlier_release_is_read_audited_and_drained_on(
    driven: DrivenFactory, topic: TopicFactory, lake: str, release: str
) -> None:
    """Purpose: a table outlives the release that made it; what that wrote must mean the same for ever.
    Procedure: a table, its dead letters and the log of what was published then, kept as files, are put into a lake;
    positions, entries and audit are read as they stand. The topic is made on the broker of the test, where it has
    another id, as after a move to a new cluster: drain; decide `new-topic`; publish; drain.
    Pass: every offset of then, byte for byte as it was published; two drains behind the start; the drain refuses the
    other topic until that is decided, then goes on; what was there and what came is there once.
    """
    kept = CHECKOUT / "tests" / "data" / release
    copytree(kept, lake, dirs_exist_ok=True)
    of_then = read_messages(kept / MESSAGES)
    web = driven(partitions=2).with_definition(topic=TOPIC, table=f"bronze/{TOPIC}", app_id=TOPIC)
    topic(2, name=TOPIC)
    found = entries(web.uri, TOPIC)

    ledger = read_ledger(web.stream, web.lake, topic_id=found[-1].topic_id, topic_partitions=2)
    audited = web.audit()

    assert ledger is not None and ledger.knows_table and ledger.knows_topic and ledger.restored_to is None
    assert ledger.positions == {TopicPartition(TOPIC, 0): 8, TopicPartition(TOPIC, 1): 8}
    assert [(e.version, e.kind, e.rows + e.dead_letters + e.tombstones) for e in found] == [
        (0, "start", 0),
        (1, "drain", 10),
        (2, "drain", 6),
    ]
    assert audited.complete and audited.offsets == len(of_then) == 16
    web.assert_each_offset_once(of_then)

    with pytest.raises(TopicRecreated):
        web.drain()
    carry_out_decision(
        web.session(), decide(web.stream, web.lake, "new-topic", session=web.session), web.stream, web.lake
    )
    produced = web.produce(20, bad=0.2)
    web.drain()

    web.assert_each_offset_once([*of_then, *produced])


def _newest_commit_says(web: DrivenStream, **fields: object) -> None:
    """Change what the newest commit's ledger entry says."""
    file = Path(web.uri) / "_delta_log" / f"{TableLog.existing(web.uri).version:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            entry = json.loads(action["commitInfo"]["userMetadata"]) | fields
            action["commitInfo"]["userMetadata"] = json.dumps(entry)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of what it was


def _no_session() -> NoReturn:
    raise AssertionError("it was to be refused before Spark is asked for")


def _golden(topic: TopicFactory, cluster: KafkaCluster, producer: Publisher, lake: str) -> DrivenStream:
    copytree(CHECKOUT / "tests" / "data" / RELEASES[-1], lake, dirs_exist_ok=True)
    topic(2, name=f"{TOPIC}_again")
    stream = web_requests(f"{TOPIC}_again", cluster, table=f"bronze/{TOPIC}", app_id=TOPIC)
    return DrivenStream(stream, lake, producer, _no_session)


@pytest.mark.core
@scenario("table written by an earlier release")
def test_an_entry_of_a_later_format_stops_the_stream_before_anything_is_read(
    topic: TopicFactory, cluster: KafkaCluster, producer: Publisher, lake: str
) -> None:
    """Purpose: a release that is rolled back must not guess at what the later one wrote.
    Procedure: the newest entry gets the next format's number; look, and drain.
    Pass: both refuse with the way out, without Spark; the table stays as it is.
    """
    web = _golden(topic, cluster, producer, lake)
    _newest_commit_says(web, kdi_ledger=FORMAT + 1)
    version = TableLog.existing(web.uri).version

    with pytest.raises(WrittenByNewerRelease, match="pip install --upgrade"):
        web.drain()

    assert isinstance(look(web.stream, web.lake).refusal, WrittenByNewerRelease)
    assert TableLog.existing(web.uri).version == version


@scenario("table written by an earlier release")
def test_an_entry_with_a_field_that_a_later_release_added_is_drained_on(driven: DrivenFactory) -> None:
    """Purpose: within a format's number, releases may come and go in any order, also side by side in one lake.
    Procedure: drain; the entry gets a field and a range gets a count that this release does not know; drain again.
    Pass: every offset exactly once, and the audit is complete.
    """
    web = driven(partitions=1)
    web.produce(10, bad=0.3)
    web.drain()
    (entry,) = entries(web.uri, web.stream.app_id, since_version=0)
    ranges = [[*counts, 0] for counts in json.loads(entry.to_json())["ranges"]]
    _newest_commit_says(web, ranges=ranges, written_by="a later release")

    produced = web.produce(10, bad=0.3, seed=1)
    web.drain()

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("schema changes between drains")
def test_a_column_that_the_document_gained_waits_for_the_table(driven: DrivenFactory) -> None:
    """Purpose: a schema that changes in silence would change what the rows mean.
    Procedure: drain; the document gains a column, and messages wait; drain; add the column to the table; drain; drop it
    from the document again, and drain.
    Pass: a typed refusal that names the column and reads nothing, while everything waits; then the rows have it, older
    ones null; without it in the document it is null; every offset exactly once.
    """
    web = driven(partitions=1)
    web.produce(10, bad=0.2)
    web.drain()
    wider = web.with_definition(columns={**web.stream.columns, "path": "parse_url(url, 'PATH')"})
    web.produce(10, bad=0.2, seed=1)

    with pytest.raises(SchemaDisagrees, match="column path is not in the table"):
        wider.drain(at=_refuse_to_read)
    waiting = look(wider.stream, web.lake).offsets
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` ADD COLUMN (path string)")
    wider.drain()
    produced = web.produce(10, bad=0.2, seed=2)
    web.drain()

    assert waiting == 10
    with_path = [
        row["meta"]["kafka"]["offset"] for row in DeltaTable(web.uri).to_pyarrow_table().to_pylist() if row["path"]
    ]
    assert with_path and set(with_path) <= set(range(10, 20))
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def _refuse_to_read(point: str) -> NoReturn:
    raise AssertionError(f"it came to {point!r}")
