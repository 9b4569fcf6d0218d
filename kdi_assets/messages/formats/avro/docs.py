"""The ``doc`` of an Avro schema's fields, as comments of the record's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.formats.avro.schema_text import WITHIN, definitions, with_full_names
from kdi_assets.messages.formats.comments import described

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def with_avro_docs(record: StructType, schema: str) -> StructType:
    """The record of an Avro schema, with each field's ``doc`` as its comment.

    Source: Avro specification, "Complex Types", "Records".
    """
    written = with_full_names(schema)
    return _AvroDocs(dict(definitions(written))).struct(record, written)


class _AvroDocs:
    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def struct(self, record: StructType, node: Any) -> StructType:
        from pyspark.sql.types import StructField, StructType

        fields = {field["name"]: field for field in self._resolved(node).get("fields", ())}

        def field_of(f: StructField) -> StructField:
            of = fields.get(f.name, {"type": "null"})
            type_, metadata = self._type(f.dataType, of["type"]), described(f.metadata, of.get("doc"))
            return StructField(f.name, type_, f.nullable, metadata)

        return StructType([field_of(f) for f in record.fields])

    def _type(self, declared: DataType, node: Any) -> DataType:
        from pyspark.sql.types import ArrayType, MapType, StructType

        node = self._resolved(node)
        match declared:
            case StructType() if "fields" in node:
                return self.struct(declared, node)
            case ArrayType() if "items" in node:
                return ArrayType(self._type(declared.elementType, node[WITHIN["array"]]), declared.containsNull)
            case MapType() if "values" in node:
                value = self._type(declared.valueType, node[WITHIN["map"]])
                return MapType(declared.keyType, value, declared.valueContainsNull)
        return declared

    def _resolved(self, node: Any) -> Mapping[str, Any]:
        """The definition of a type; of a union with one type beside null, that one."""
        if isinstance(node, list):
            others = [branch for branch in node if branch != "null"]
            return self._resolved(others[0]) if len(others) == 1 else {}
        if isinstance(node, str):
            found: Mapping[str, Any] = self._known.get(node, {})
            return found
        return node if isinstance(node.get("type"), str) else self._resolved(node["type"])
