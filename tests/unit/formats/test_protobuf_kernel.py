"""Which Protobuf messages the kernel reads, and which Protobuf's own library does."""

from __future__ import annotations

import pytest

from kdi_assets.messages.formats.protobuf.kernel import kernel_description
from kdi_assets.messages.formats.protobuf.payloads import Payloads, Reading
from tests.formats.protobuf_messages import LEGACY, SHOP, descriptors

PLAIN = 'syntax = "proto3"; package a; message M { string s = 1; N n = 2; } message N { int32 i = 1; }'
BESIDE = PLAIN.replace("message N {", "message N { string t = 2;")
RECURSIVE = PLAIN.replace("message N {", "message N { M m = 2;")
EDITION = PLAIN.replace('syntax = "proto3"', 'edition = "2023"')


def is_in_kernel(text: str, message: str, *writers: str) -> bool:
    by_id = {number: descriptors(writer) for number, writer in enumerate(writers)} if writers else None
    return kernel_description(Reading(Payloads(descriptors(text), message, by_id))) is not None


@pytest.mark.parametrize(
    ("text", "message", "expected"),
    [
        (PLAIN, "a.M", True),
        (LEGACY, "legacy.Order", True),
        (SHOP, "shop.Place", True),
        (SHOP, "shop.Order", False),  # it has a google.protobuf.Struct
        (RECURSIVE, "a.M", False),  # the field in itself has no column, and its bytes must be a message
        (EDITION, "a.M", False),
    ],
)
def test_the_kernel_reads_a_message_whose_parts_it_all_knows(text: str, message: str, expected: bool) -> None:
    assert is_in_kernel(text, message) == expected


def test_the_kernel_reads_messages_of_a_registry_if_it_knows_them_in_every_schema() -> None:
    assert is_in_kernel(PLAIN, "a.M", PLAIN, BESIDE, LEGACY)
    assert not is_in_kernel(PLAIN, "a.M", PLAIN, RECURSIVE)
