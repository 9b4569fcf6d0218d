"""What a message that was not decoded looks like, by its first bytes: its reason then names how the sender wrote it.

A message that was decoded may begin with the same bytes, for example with numbers of Avro.

Source: AWS Glue Schema Registry library, ``AWSSchemaRegistryConstants``: its frame is 03, then 00 or 05 (the payload is
compressed with zlib), then the 16 bytes of the schema version's UUID.
"""

from __future__ import annotations

from uuid import UUID

from kdi_assets.messages.formats.rules import Rule

_COMPRESSED = {"looks_like_gzip": b"\x1f\x8b\x08", "looks_like_zstd": b"\x28\xb5\x2f\xfd"}
_GLUE, _GLUE_STARTS, _GLUE_BYTES = "glue_frame", (b"\x03\x00", b"\x03\x05"), 18


def looks_like(value: bytes) -> tuple[str, str] | None:
    """Reason and field of a message that was not decoded, if its first bytes say more than its decoder."""
    if len(value) >= _GLUE_BYTES and value.startswith(_GLUE_STARTS):
        return _GLUE, str(UUID(bytes=value[2:_GLUE_BYTES]))
    return next(((reason, "") for reason, start in _COMPRESSED.items() if value.startswith(start)), None)


def foreign_rules(column: str) -> list[Rule]:
    """The same as rules.

    Args:
        column: Spark SQL of the message's bytes.
    """
    frame = f"length({column}) >= {_GLUE_BYTES} AND ({' OR '.join(_starts(column, start) for start in _GLUE_STARTS)})"
    digits = f"lower(hex(substring({column}, 3, 16)))"
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    version = f"concat_ws('-', {', '.join(f'substring({digits}, {at}, {length})' for at, length in parts)})"
    return [
        Rule(_GLUE, frame, field_sql=version),
        *(Rule(reason, _starts(column, start)) for reason, start in _COMPRESSED.items()),
    ]


def _starts(column: str, start: bytes) -> str:
    return f"startswith({column}, X'{start.hex()}')"
