"""Materializing a date of a stream's dead letters: what is replayed, and which dates get events."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components import dead_letters_asset as letters_asset_module
from kdi_assets.components.dead_letters_asset import letters_asset
from kdi_assets.components.names import letters_key, table_key, topic_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.documents.model.stream import DateWindow, Stream, TopicPartition
from kdi_assets.resources.spark import SparkResource
from kdi_assets.streams.drain.errors import AnotherDrainActive
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterCounts, DeadLetterFilter, DeadLetterGroup
from kdi_assets.streams.replay.report import ReplayReport
from tests.dagster.fakes import (
    ScriptedDrain,
    a_commit,
    a_stream,
    events,
    failure,
    materialize,
    no_audit,
    range_tags,
    run,
    today,
    yesterday,
)

pytestmark = pytest.mark.usefixtures("lake_in_environment")

OLD, STREAM = date(2021, 3, 4), a_stream()
AT = (TopicPartition("web_requests", 0), 7)


def before() -> date:
    """The date of the letters: the day before yesterday."""
    return yesterday() - timedelta(days=1)


def counts() -> DeadLetterCounts:
    day = before()
    still, done = (
        DeadLetterGroup("open", "wrong_type", "a|b", 4, day, day, AT),
        DeadLetterGroup("resolved", "", "", 3, day, day, AT),
    )
    return DeadLetterCounts(9, {day: (still, done, DeadLetterGroup("open", "malformed_json", "", 1, day, day, AT))})


@dataclass
class ScriptedReplay:
    """Reports outcomes of letters, or refuses."""

    decided: ReplayReport
    refuses: bool = False
    asked: list[tuple[DeadLetterFilter, str]] = field(default_factory=list)

    def __call__(
        self, stream: Stream, *, letter_filter: DeadLetterFilter, run_id: str, **_unused: object
    ) -> ReplayReport:
        self.asked.append((letter_filter, run_id))
        if self.refuses:
            raise AnotherDrainActive(stream=stream.name, detail="another came first")
        return self.decided


@pytest.fixture(autouse=True)
def _counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_asset_module, "count_dead_letters", lambda *_: counts())


def replayed(instance: DagsterInstance, replay: ScriptedReplay, first: date, last: date) -> dg.ExecuteInProcessResult:
    """A run over a range of dates, as a backfill starts it."""
    return materialize(instance, [letters_asset(STREAM, replay=replay)], tags=range_tags(first, last))


def test_a_range_of_dates_is_one_replay_and_every_date_tells_how_its_letters_stand(instance: DagsterInstance) -> None:
    commit = a_commit(9, {OLD: 3}, letters_by_date={before(): 3})
    replay = ScriptedReplay(ReplayReport("s", {"row": 3, "dead_letter": 5}, withheld=1, commit=commit))

    result = replayed(instance, replay, before(), today())

    assert result.success
    assert replay.asked == [(DeadLetterFilter(first=before(), last=today()), result.run_id)]
    letters, rows = events(instance, letters_key(STREAM)), events(instance, table_key(STREAM))
    assert letters.keys() == {day.isoformat() for day in (before(), yesterday(), today())}
    of_day = letters[before().isoformat()]
    assert (of_day["open"], of_day["resolved"], of_day["discarded"], of_day["letters_written"]) == (5, 3, 0, 3)
    assert of_day["replayed"] == {"row": 3, "dead_letter": 5, "withheld": 1, "waiting": 0}
    assert of_day["delta_version"] == 9
    assert of_day["open_by_reason"].splitlines()[2:] == [
        "| wrong_type | a\\|b | 4 | web_requests/0 offset 7 |",
        "| malformed_json |  | 1 | web_requests/0 offset 7 |",
    ]
    assert (letters[today().isoformat()]["open"], "open_by_reason" in letters[today().isoformat()]) == (0, False)
    assert {day: event["rows_added"] for day, event in rows.items()} == {OLD.isoformat(): 3}


def test_a_replay_of_which_nothing_came_still_tells_how_the_date_stands(instance: DagsterInstance) -> None:
    assert replayed(instance, ScriptedReplay(ReplayReport("s", {"dead_letter": 5})), before(), before()).success

    assert events(instance, letters_key(STREAM))[before().isoformat()]["open"] == 5
    assert events(instance, table_key(STREAM)) == {}


def test_what_a_replay_refuses_is_shown_and_tells_of_no_date(instance: DagsterInstance) -> None:
    result = replayed(instance, ScriptedReplay(ReplayReport("s"), refuses=True), before(), before())

    assert failure(result)[1]["error"] == "AnotherDrainActive"
    assert events(instance, letters_key(STREAM)) == {}


def test_a_drain_tells_of_the_dates_of_its_letters_which_are_those_of_their_timestamps(
    instance: DagsterInstance,
) -> None:
    stream = a_stream(date_window=DateWindow(start=date(2025, 1, 1)))
    commit = a_commit(1, {today(): 1}, dead_letters=6, letters_by_date={yesterday(): 2, before(): 3, OLD: 1})

    run(instance, stream, ScriptedDrain([commit, a_commit(2, {today(): 1})]))

    letters = events(instance, letters_key(stream))
    written = {day: event["letters_written"] for day, event in letters.items()}
    assert written == {str(yesterday()): 2, str(before()): 3}, "Dagster's partitions do not have the third date"
    assert "attempt_id IN ('attempt-1')" in letters[before().isoformat()]["dead_letters_query"]


def test_letters_wait_for_their_table_and_no_run_of_the_table_takes_them_along() -> None:
    letters = letters_asset(STREAM, replay=ScriptedReplay(ReplayReport("s")))
    table = table_asset(STREAM, drain=ScriptedDrain(), audit=no_audit)

    graph = dg.Definitions(assets=[table, letters], resources={"spark": SparkResource()}).resolve_asset_graph()

    node, of_table = graph.get(letters_key(STREAM)), graph.get(table_key(STREAM))
    assert node.pools == of_table.pools
    assert node.parent_keys == of_table.parent_keys == {topic_key(STREAM.kafka, STREAM.topic)}
    assert (node.automation_condition, node.freshness_policy, node.check_keys) == (None, None, set())
