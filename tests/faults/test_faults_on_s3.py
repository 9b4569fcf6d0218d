"""Races and interference on a lake in an S3 bucket: tests of a local lake once more."""

from __future__ import annotations

import pytest

from tests.faults import test_interleavings

test_two_drains_at_once = test_interleavings.test_two_drains_at_once_lose_and_double_nothing
test_interference = test_interleavings.test_what_comes_between_plan_and_commit_costs_no_message
test_busy_table = test_interleavings.test_commits_that_do_not_concern_the_ledger_never_pass_for_another_drain
test_vacuum = test_interleavings.test_a_vacuum_that_spares_no_young_file_costs_a_try_and_no_message
test_lost_answer = test_interleavings.test_a_commit_whose_answer_was_lost_is_found_in_the_log
test_two_creators = test_interleavings.test_two_creators_at_once_make_one_table


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake
