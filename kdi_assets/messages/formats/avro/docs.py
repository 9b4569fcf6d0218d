"""The ``doc`` and the tags of an Avro schema's fields, as comments and tags of the record's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.formats.avro.schema_text import WITHIN, definitions, with_full_names
from kdi_assets.messages.formats.comments import CONFLUENT_TAGS, described, with_tags_of_whole

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def with_avro_docs(record: StructType, schema: str) -> StructType:
    """The record of an Avro schema, with each field's ``doc`` as its comment, and its tags and those of its type.

    Tags of the record itself are those of each field.

    Source: Avro specification, "Complex Types", "Records".
    """
    written = with_full_names(schema)
    docs = _AvroDocs(dict(definitions(written)))
    return with_tags_of_whole(docs.struct(record, written), docs.resolved(written).get(CONFLUENT_TAGS, ()))


class _AvroDocs:
    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def struct(self, record: StructType, node: Any) -> StructType:
        from pyspark.sql.types import StructField, StructType

        fields = {field["name"]: field for field in self.resolved(node).get("fields", ())}

        def field_of(f: StructField) -> StructField:
            of = fields.get(f.name, {"type": "null"})
            metadata = described(f.metadata, of.get("doc"), of.get(CONFLUENT_TAGS, ()))
            for definition in self._definitions(of["type"]):
                metadata = described(metadata, "", definition.get(CONFLUENT_TAGS, ()))
            return StructField(f.name, self._type(f.dataType, of["type"]), f.nullable, metadata)

        return StructType([field_of(f) for f in record.fields])

    def _type(self, declared: DataType, node: Any) -> DataType:
        from pyspark.sql.types import ArrayType, MapType, StructField, StructType

        branches = _branches(node)
        if isinstance(declared, StructType) and len(branches) > 1:  # Spark's member0, member1, …
            members = zip(declared.fields, branches, strict=True)
            return StructType([StructField(f.name, self._type(f.dataType, of), f.nullable) for f, of in members])
        node = self.resolved(node)
        match declared:
            case StructType() if "fields" in node:
                return self.struct(declared, node)
            case ArrayType() if "items" in node:
                return ArrayType(self._type(declared.elementType, node[WITHIN["array"]]), declared.containsNull)
            case MapType() if "values" in node:
                value = self._type(declared.valueType, node[WITHIN["map"]])
                return MapType(declared.keyType, value, declared.valueContainsNull)
        return declared

    def resolved(self, node: Any) -> Mapping[str, Any]:
        """The definition of a type; of a union with one type beside null, that one."""
        if isinstance(node, list):
            branches = _branches(node)
            return self.resolved(branches[0]) if len(branches) == 1 else {}
        if isinstance(node, str):
            found: Mapping[str, Any] = self._known.get(node, {})
            return found
        return node if isinstance(node.get("type"), str) else self.resolved(node["type"])

    def _definitions(self, node: Any) -> Iterator[Mapping[str, Any]]:
        """The definitions of a field's type, also of each branch of a union and of what an array or map holds."""
        if isinstance(node, list):
            for branch in node:
                yield from self._definitions(branch)
        elif isinstance(node, str):
            if node in self._known:
                yield self._known[node]
        else:
            yield node
            for key in ("items", "values", "type"):
                if isinstance(node.get(key), dict | list) or key != "type" and key in node:
                    yield from self._definitions(node[key])


def _branches(node: Any) -> list[Any]:
    """The types of a union beside null; none if it is no union."""
    return [branch for branch in node if branch != "null"] if isinstance(node, list) else []
