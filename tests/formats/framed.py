"""Messages and their frames, for the two parsers of frames: Spark SQL and Python."""

from __future__ import annotations

FRAMES: dict[bytes | None, tuple[str | None, int | None, bytes | None]] = {
    # message: reason, schema id, payload
    b"\x00\x00\x00\x00\x01abc": (None, 1, b"abc"),
    b"\x00\x00\x01\x86\xa0\x00\x00": (None, 100_000, b"\x00\x00"),
    b"\x00\x00\x00\x00\x01": (None, 1, b""),
    b"\x00\x00\x00\x00\x00x": (None, 0, b"x"),
    b"\x00\x7f\xff\xff\xffx": (None, 2**31 - 1, b"x"),
    b"\x00\xff\xff\xff\xff\xff\xfe": (None, 2**32 - 1, b"\xff\xfe"),  # no id: no schema is found for it
    b"\x00\x80\x00\x00\x00x": (None, 2**31, b"x"),
    b"": ("too_short", None, None),
    b"\x00": ("too_short", None, None),
    b"\x00\x00\x00\x01": ("too_short", None, None),
    b'{"id": 1}': ("no_magic_byte", None, None),
    b"{": ("no_magic_byte", None, None),
    b"\x01\x00\x00\x00\x01abc": ("no_magic_byte", None, None),
    b"\xff\xfe": ("no_magic_byte", None, None),
    None: (None, None, None),
}


def framed(schema_id: int, payload: bytes) -> bytes:
    """A payload in a registry's frame."""
    return b"\x00" + schema_id.to_bytes(4, "big") + payload
