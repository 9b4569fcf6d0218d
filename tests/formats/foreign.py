"""Messages as other senders write them than a table expects."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
"""A schema version of AWS Glue's schema registry."""
GLUE_FRAMED = b"\x03\x00" + UUID(VERSION).bytes + b'{"id": 1}'
ZSTD = bytes(pa.compress(b'{"id": 1}', codec="zstd", asbytes=True))
