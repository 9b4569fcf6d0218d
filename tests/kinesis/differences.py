"""What other Kinesis endpoints are known to do otherwise than the contract of our tests says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from botocore.exceptions import ClientError

DID_NOT_RAISE = pytest.fail.Exception
_NO_PARENTS = "it removes a shard that is split or merged, and what is in it"
DIFFERENCES: Mapping[str, Mapping[str, tuple[str, type[BaseException]]]] = {
    "ministack": {
        "test_sequence_numbers_have_56_digits_and_grow_within_a_shard": (
            "30 digits, with leading zeros",
            AssertionError,
        ),
        "test_a_timestamp_in_the_future_is_refused": ("it is taken", DID_NOT_RAISE),
        "test_a_sequence_number_of_another_shard_is_refused_and_both_are_named": ("it is taken", DID_NOT_RAISE),
        "test_a_sequence_number_of_a_deleted_stream_of_the_same_name_is_refused": ("it is taken", DID_NOT_RAISE),
        "test_more_than_ten_thousand_records_cannot_be_asked_for": ("any limit is taken", DID_NOT_RAISE),
        "test_a_shard_takes_five_reads_in_a_second": ("nothing is throttled", DID_NOT_RAISE),
        "test_more_than_500_records_too_large_ones_and_bad_hash_keys_are_refused": (
            "bad hash keys are taken",
            DID_NOT_RAISE,
        ),
        "test_a_split_shard_is_closed_stays_readable_and_names_its_children_at_its_end": (_NO_PARENTS, ValueError),
        "test_the_children_of_a_split_take_over_its_hash_range_and_its_records": (_NO_PARENTS, ValueError),
        "test_behind_the_last_record_of_a_closed_shard_a_reader_is_at_its_end": (_NO_PARENTS, ClientError),
        "test_a_merged_shard_names_both_parents": (_NO_PARENTS, IndexError),
        "test_only_open_neighbours_are_merged_and_only_open_shards_are_split": (
            "any two shards are merged",
            DID_NOT_RAISE,
        ),
        "test_the_shard_count_at_most_doubles_and_at_most_halves": ("any count is taken", DID_NOT_RAISE),
        "test_shards_are_listed_in_pages_whose_token_stands_alone": (
            "a token needs the stream's name beside it",
            ClientError,
        ),
        "test_filters_of_shards_select_by_time_and_by_id": (_NO_PARENTS, AssertionError),
        "test_a_dry_run_only_says_that_the_call_would_succeed": ("the call is made", DID_NOT_RAISE),
        "test_a_consumer_is_created_becomes_active_and_is_found_by_name_and_arn": (
            "a consumer is ACTIVE at once",
            AssertionError,
        ),
        "test_a_stream_with_consumers_is_deleted_only_with_them": ("it is deleted with them", DID_NOT_RAISE),
        "test_a_subscription_ends_at_the_end_of_its_shard_with_the_children[later]": (_NO_PARENTS, ClientError),
    },
}
"""What an endpoint is known to do otherwise: by its name; of each test the reason, and how it fails."""
