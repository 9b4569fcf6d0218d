"""Protobuf to typed records, in Spark's Python workers: a payload crosses to them once, its record comes back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD, FormatMistake
from kdi_assets.formats.protobuf import payloads
from kdi_assets.formats.protobuf.descriptors import DescriptorMistake
from kdi_assets.formats.protobuf.payloads import Payloads, Reading, decoding
from kdi_assets.formats.protobuf.records import spark_record
from kdi_assets.formats.rules import Rule
from kdi_assets.message_format import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ProtobufDecoder:
    """A message per payload, of one type; ``_kdi_document`` is its record, or the number of the rule why not."""

    written: Protobuf

    def record_type(self, ddl: str) -> StructType:
        try:
            return spark_record(self._reading.record)
        except DescriptorMistake as refused:
            raise FormatMistake("format.protobuf", f"{self.written.path}: {refused.message}") from refused

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.types import IntegerType, StructField, StructType

        _take_code_along()
        decode = decoding(self._payloads)
        document = StructType([StructField(payloads.RULE, IntegerType()), StructField(payloads.RECORD, record)])
        # Without annotations: PySpark would look for what they name. Not deterministic: else Spark may run it again
        # wherever its result stands in a condition.
        decoded = cast(Any, arrow_udf)(lambda payload: decode(payload), document).asNondeterministic()
        return (
            messages.withColumn(DOCUMENT, decoded(PAYLOAD))
            .withColumn(DECODED, F.expr(f"{DOCUMENT}.{payloads.RULE} IS NULL"))
            .withColumn(RECORD, F.expr(f"{DOCUMENT}.{payloads.RECORD}"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        *others, (reason, field) = self._reading.reasons
        numbered = enumerate(others, 1)
        return [
            *(Rule(reason, f"{DOCUMENT}.{payloads.RULE} = {number}", field) for number, (reason, field) in numbered),
            Rule(reason, "true", field),
        ]

    @property
    def _payloads(self) -> Payloads:
        return Payloads(self.written.descriptors, self.written.message)

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self._payloads)


def _take_code_along() -> None:
    """Send the functions themselves to workers, not the names of their modules.

    A warm driver's workers live on when this package is replaced by a newer one, and executors elsewhere need not have
    it at all.
    """
    from pyspark import cloudpickle

    from kdi_assets.formats import framing, protobuf

    for module in (framing, protobuf):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
