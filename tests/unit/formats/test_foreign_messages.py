"""What messages that were not decoded look like."""

from __future__ import annotations

import gzip
from uuid import UUID

import pytest

from kdi_assets.messages.formats.foreign import looks_like
from kdi_assets.tools.scaffold.recognise_format import recognise
from tests.formats.foreign import GLUE_FRAMED, VERSION, ZSTD


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (gzip.compress(b"{}", mtime=0), ("looks_like_gzip", "")),
        (b"\x1f\x8b", None),
        (ZSTD, ("looks_like_zstd", "")),
        (GLUE_FRAMED, ("glue_frame", VERSION)),
        (b"\x03\x05" + UUID(VERSION).bytes, ("glue_frame", VERSION)),
        (b"\x03\x01" + UUID(VERSION).bytes, None),
        (b"\x03\x00" + UUID(VERSION).bytes[:-1], None),
        (b"", None),
        (b'{"id": 1}', None),
    ],
)
def test_the_first_bytes_name_a_compression_or_a_frame(value: bytes, expected: tuple[str, str] | None) -> None:
    assert looks_like(value) == expected


def test_a_sample_of_json_names_its_foreign_messages_as_the_decoder_does() -> None:
    sample = [*(b'{"id": %d}' % n for n in range(20)), gzip.compress(b'{"id": 20}', mtime=0), GLUE_FRAMED]

    found = recognise(sample, None)

    assert (found.format, found.records[20:]) == ("json", [("looks_like_gzip", ""), ("glue_frame", VERSION)])
