"""Races, interference, RESTOREs and lost letters on a lake in an S3 bucket: tests of a local lake once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.dev.s3_server import S3Server
from tests.faults import test_dead_letters, test_interleavings, test_restores, test_signals, test_strangers
from tests.faults.warm_driver import WarmDriver

test_two_drains_at_once = test_interleavings.test_two_drains_at_once_lose_and_double_nothing
test_interference = test_interleavings.test_what_comes_between_plan_and_commit_costs_no_message
test_busy_table = test_interleavings.test_commits_that_do_not_concern_the_ledger_never_pass_for_another_drain
test_vacuum = test_interleavings.test_a_vacuum_that_spares_no_young_file_costs_a_try_and_no_message
test_lost_answer = test_interleavings.test_a_commit_whose_answer_was_lost_is_found_in_the_log
test_two_creators = test_interleavings.test_two_creators_at_once_make_one_table
test_restores_during_a_drain = test_restores.test_restores_during_a_drain_are_answered_and_the_lost_rows_drained_again
test_letters_without_a_commit = test_dead_letters.test_dead_letters_of_an_attempt_that_never_committed_do_not_count
test_letters_removed = test_dead_letters.test_a_drain_whose_dead_letters_are_removed_before_its_commit_does_not_commit
test_dropped_table = test_strangers.test_a_table_dropped_under_a_drain_is_said_and_what_takes_its_place_left_alone
test_killed_decision = test_signals.test_a_decision_that_is_killed_around_its_commit_did_nothing_or_all_of_it
test_killed_replays = test_signals.test_letters_of_a_wrong_definition_all_come_back_whatever_is_killed
test_late_driver = test_signals.test_a_drain_that_wakes_after_another_one_drained_its_range_commits_nothing_twice
test_dead_sender = test_signals.test_what_becomes_of_a_commit_whose_sender_was_killed_the_next_drain_sees


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


@pytest.fixture(scope="module")
def warm_driver(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    """A driver with S3's client, for the processes that are killed."""
    driver = WarmDriver(tmp_path_factory.mktemp("home"), {**s3_server.environment(), "KDI_LAKE": "s3://tests"})
    yield driver
    driver.stop()
