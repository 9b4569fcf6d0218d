"""The check of schemas and expressions, made once for streams that differ in their names alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class SharedAnalysis:
    """``analyse`` that remembers what it found: the tables of many topics share schema and expressions."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[tuple[Stream, StructType | ShapeMistake]]] = {}

    def __call__(self, stream: Stream, spark: SparkSession) -> StructType:
        """As ``analyse``."""
        nameless = replace(stream, topic="", table="", app_id="")
        known = self._found.setdefault((stream.record_ddl, stream.date_expression), [])
        found = next((found for other, found in known if other == nameless), None)
        if found is None:
            try:
                found = analyse(stream, spark)
            except ShapeMistake as refused:
                found = refused
            known.append((nameless, found))
        if isinstance(found, ShapeMistake):
            raise replace(found, stream=stream.name)
        return found
