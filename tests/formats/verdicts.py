"""The results of a decoder: one job for all messages, each with its record or its reason."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.documents.model.message_format import Compression, Format
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.formats.rules import field_of, first_of, reason_of
from kdi_assets.messages.formats.stream_decoder import decoder_of
from kdi_assets.streams.rules.records import working_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Verdict(NamedTuple):
    """``record`` is its JSON, as Spark writes it."""

    decoded: bool
    reason: str | None
    field: str | None
    record: str | None


class Verdicts(UserDict[bytes, Verdict]):
    """By message; text stands for its UTF-8."""

    def __getitem__(self, message: bytes | str) -> Verdict:
        return self.data[_bytes(message)]


def verdicts_of(
    spark: SparkSession,
    format_: Format,
    messages: Sequence[bytes | str],
    *,
    ddl: str = "",
    compression: Compression = "none",
) -> Verdicts:
    """The verdict of every message, by the decoder of such a stream."""
    from pyspark.sql import functions as F

    nowhere = Cluster("main", "nowhere:1")
    stream = Stream("t", "t", ddl, "current_date()", nowhere, format=format_, compression=compression)
    decoder = decoder_of(stream)
    rules = decoder.rules()
    undecoded = F.expr("NOT _kdi_decoded")
    values = spark.createDataFrame([(bytearray(_bytes(m)),) for m in messages], "_kdi_value binary")
    decoded = decoder.decode(values)
    judged = (
        decoded.select(*working_columns(decoded, stream))  # a drain keeps no others, and the rules see no others
        .withColumn("rule", F.expr(f"CASE WHEN NOT _kdi_decoded THEN {first_of(rules)} END"))
        .withColumn("reason", F.when(undecoded, F.expr(reason_of("rule", rules))))
        .withColumn("field", F.when(undecoded, F.expr(field_of("rule", rules))))
        .withColumn("text", F.to_json("_kdi_record"))
    )
    found = judged.select("_kdi_value", "_kdi_decoded", "reason", "field", "text").collect()
    return Verdicts({bytes(row[0]): Verdict(*row[1:]) for row in found})


def _bytes(message: bytes | str) -> bytes:
    return message if isinstance(message, bytes) else message.encode()
