"""What a producer compressed, made large again: in the JVM, within bounds, without a word changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.formats.catalyst import gunzipped, unzstd, zstd_size
from kdi_assets.formats.decoder import PAYLOAD, VALUE
from kdi_assets.formats.rules import Rule
from kdi_assets.stream.message_format import Compression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT = 64 * 1024 * 1024
"""Bytes that a message may hold. Gzip makes at most a thousand of one, zstd as many as it likes."""
_WITHOUT_SIZE = (32, 4096)
"""How often larger than the message a frame of zstd is tried to be that does not say how large it is."""
_SIZE, _WHOLE = "_kdi_size", "_kdi_whole"


def with_payload(messages: DataFrame, compression: Compression) -> DataFrame:
    """Add what the values hold as ``_kdi_payload: binary``; null where a value is not what the stream says it is."""
    from pyspark.sql import functions as F

    match compression:
        case "none":
            return messages.withColumn(PAYLOAD, F.col(VALUE))
        case "gzip":
            return _gunzipped(messages)
        case "zstd":
            return _unzstd(messages)


def compression_rules(compression: Compression) -> list[Rule]:
    """Why a value holds no payload."""
    return [] if compression == "none" else [Rule(f"not_{compression}", f"{PAYLOAD} IS NULL")]


def _gunzipped(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    # The magic number first: what is no gzip at all should cost no exception.
    whole = gunzipped(messages.sparkSession, VALUE, at_most=LIMIT + 1)
    opened = messages.withColumn(_WHOLE, F.when(F.expr(f"startswith({VALUE}, X'1F8B')"), whole))
    return opened.withColumn(PAYLOAD, F.expr(f"CASE WHEN length({_WHOLE}) <= {LIMIT} THEN {_WHOLE} END"))


def _unzstd(messages: DataFrame) -> DataFrame:
    """Java's reader of zstd keeps its native memory until it is collected, a window for each message; this has none.

    It wants to know how large the payload is. Most frames say it; for others, and for several in a row, it is tried.
    """
    from pyspark.sql import functions as F

    spark = messages.sparkSession
    magic = F.expr(f"startswith({VALUE}, X'28B52FFD')")  # first: what is no zstd at all should cost no exception
    sized = messages.withColumn(_SIZE, F.when(magic, zstd_size(spark, VALUE)))
    known = unzstd(spark, VALUE, f"CAST({_SIZE} AS INT)")
    tried = [
        unzstd(spark, VALUE, f"CAST(least({LIMIT}, 4096 + {times}L * length({VALUE})) AS INT)")
        for times in _WITHOUT_SIZE
    ]
    payload = F.when(F.expr(f"{_SIZE} BETWEEN 0 AND {LIMIT}"), F.coalesce(known, tried[0]))
    return sized.withColumn(PAYLOAD, payload.when(F.expr(f"{_SIZE} < 0"), F.coalesce(*tried)))
