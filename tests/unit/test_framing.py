"""What stands in front of a message: taken apart, or refused with a reason."""

from __future__ import annotations

import pytest

from kdi_assets.formats.framing import Frame, MessageIndex, split_frame, split_message_index
from tests.framed import FRAMES


@pytest.mark.parametrize("value", [value for value in FRAMES if value is not None])
def test_a_frame_is_taken_apart_or_refused(value: bytes) -> None:
    reason, schema_id, payload = FRAMES[value]

    assert split_frame(value) == (reason if schema_id is None or payload is None else Frame(schema_id, payload))


@pytest.mark.parametrize(
    ("payload", "path", "message"),
    [
        (b"\x00\x08\x01", (0,), b"\x08\x01"),
        (b"\x00", (0,), b""),
        (b"\x02\x00\x08\x01", (0,), b"\x08\x01"),  # the long way to say the same
        (b"\x02\x02\x08\x01", (1,), b"\x08\x01"),
        (b"\x04\x00\x04", (0, 2), b""),
        (b"\x06\x02\x04\x06x", (1, 2, 3), b"x"),
        (b"\x02\x80\x01x", (64,), b"x"),
        (b"\x02\xfe\xff\xff\xff\x0fx", (2**31 - 1,), b"x"),
        (b"\xc8\x01" + b"\x00" * 100 + b"x", (0,) * 100, b"x"),
    ],
)
def test_a_message_index_is_a_path_into_the_file(payload: bytes, path: tuple[int, ...], message: bytes) -> None:
    found = split_message_index(payload)

    assert found == MessageIndex(path, len(payload) - len(message))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "too_short"),
        (b"\x02", "bad_message_index"),  # one place, and it is not there
        (b"\x04\x00", "bad_message_index"),
        (b"\x80", "bad_message_index"),  # a count that does not end
        (b"\x02\x80\x80", "bad_message_index"),
        (b"\x01\x00", "bad_message_index"),  # -1 places
        (b"\x02\x01", "bad_message_index"),  # place -1
        (b"\xca\x01" + b"\x00" * 200, "bad_message_index"),  # 101 places
        (b"\xff\xff\xff\xff\x7f\x00", "bad_message_index"),  # beyond 32 bits
        (b"\x80\x80\x80\x80\x80\x01\x00", "bad_message_index"),
    ],
)
def test_what_is_no_message_index_has_a_reason(payload: bytes, reason: str) -> None:
    assert split_message_index(payload) == reason
