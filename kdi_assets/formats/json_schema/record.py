"""The record that a JSON Schema describes, in Spark's types, everything nullable.

``required`` is not taken for NOT NULL: messages of other versions may lack what one version requires. It is what
validation holds each message against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.formats.json_schema.schema import JsonSchema, Place, SchemaRefused, Texts

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

OBJECT_KEYS = ("properties", "patternProperties")
ARRAY_KEYS = ("items", "prefixItems")
UNIONS = ("anyOf", "oneOf")
KEYS = ("type", "$ref", "enum", "const", "allOf", *OBJECT_KEYS, *ARRAY_KEYS, *UNIONS)
"""What says something of a type."""
UNTIL_7 = ("draft-04", "draft-06", "draft-07")
"""Drafts in which nothing counts beside a reference."""


def record_of(schema: JsonSchema) -> StructType:
    """The type of the documents that a schema describes.

    Raises:
        SchemaRefused: It describes no objects, or something that has no type in a table; says where.
    """
    from pyspark.sql.types import StructType

    texts = Texts(schema)
    texts.refuse_malformed()
    found = _SchemaReader(texts).type_of(texts.top())
    if not isinstance(found, StructType):
        raise SchemaRefused(f"# describes no object with properties but {found.simpleString()}")
    return found


class _SchemaReader:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        named = texts.root.get("$schema", "") if isinstance(texts.root, dict) else ""
        self._only_reference = any(draft in named for draft in UNTIL_7)

    def type_of(self, place: Place) -> DataType:
        """The type of a column.

        Raises:
            SchemaRefused: There is none.
        """
        from pyspark.sql.types import StructType

        if not _says_something(place.node):
            raise SchemaRefused(f"{place.at} says nothing of a type")
        found = self._may_be(place)
        if found is None:
            raise SchemaRefused(f"{place.at} is never anything but null")
        if isinstance(found, StructType) and not found.fields:
            raise SchemaRefused(f"{place.at} is an object of which neither properties nor the type of values is said")
        return found

    def _may_be(self, place: Place) -> DataType | None:
        """What all that is said of a place comes to; an object without properties may get some elsewhere."""
        return _together([t for t in self._said(place) if t is not None], place)

    def _said(self, place: Place) -> Iterator[DataType | None]:
        node = place.node
        if not isinstance(node, dict):
            raise SchemaRefused(f"{place.at} says nothing of a type")
        if "$ref" in node:
            yield self._may_be(self._texts.referred(place, node["$ref"]))
            if self._only_reference:
                return
        for kind in _kinds(place):
            yield self._of_kind(kind, place)
        for union in ("allOf", *UNIONS):
            for n, branch in enumerate(node.get(union, ())):
                if _says_something(branch):  # others only say what must be there, or how long it is
                    yield self._may_be(place.inside(union, n))

    def _of_kind(self, kind: str, place: Place) -> DataType | None:
        from pyspark.sql import types as t

        match kind:
            case "null":
                return None
            case "boolean":
                return t.BooleanType()
            case "integer":
                return t.LongType()
            case "number":
                return t.DoubleType()
            case "string":
                times: dict[Any, DataType] = {"date-time": t.TimestampType(), "date": t.DateType()}
                return times.get(place.node.get("format"), t.StringType())
            case "array":
                return self._array(place)
            case "object":
                return self._object(place)
        raise SchemaRefused(f"{place.at} has a type that JSON Schema does not know: {kind}")

    def _array(self, place: Place) -> DataType:
        from pyspark.sql.types import ArrayType

        if "prefixItems" in place.node or isinstance(place.node.get("items"), list):
            raise SchemaRefused(f"{place.at} has a type of its own for each position, which no column has")
        if not isinstance(place.node.get("items"), dict):
            raise SchemaRefused(f"{place.at} says nothing of the type of its items")
        return ArrayType(self.type_of(place.inside("items")))

    def _object(self, place: Place) -> DataType:
        from pyspark.sql.types import MapType, StringType, StructType

        node = place.node
        if node.get("properties"):
            return StructType([self._field(name, place.inside("properties", name)) for name in node["properties"]])
        values = [place.inside("patternProperties", pattern) for pattern in node.get("patternProperties", ())]
        if _says_something(node.get("additionalProperties")):
            values.append(place.inside("additionalProperties"))
        found = _together([self.type_of(value) for value in values], place)
        return StructType() if found is None else MapType(StringType(), found)

    def _field(self, name: str, place: Place) -> StructField:
        from pyspark.sql.types import StructField

        described = place.node.get("description") if isinstance(place.node, dict) else None
        comment = {"comment": described} if isinstance(described, str) else None
        return StructField(name, self.type_of(place), metadata=comment)


def _says_something(node: object) -> bool:
    return isinstance(node, dict) and any(key in node for key in KEYS)


def _kinds(place: Place) -> list[str]:
    """The types that are named at a place, or that its other keywords are about."""
    node = place.node
    if "type" in node:
        named = node["type"] if isinstance(node["type"], list) else [node["type"]]
        return list(dict.fromkeys(map(str, named)))
    if "enum" in node or "const" in node:
        return list(dict.fromkeys(_kind_of(value) for value in node.get("enum", [node.get("const")])))
    about = {"object": OBJECT_KEYS, "array": ARRAY_KEYS}
    return [kind for kind, keys in about.items() if any(key in node for key in keys)]


def _kind_of(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _together(types: Sequence[DataType], place: Place) -> DataType | None:
    """The one type for all; of objects, one with the properties of each.

    Raises:
        SchemaRefused: They have none.
    """
    from pyspark.sql import types as t

    if not types:
        return None
    kinds = {type(type_) for type_ in types}
    if kinds == {t.StructType}:
        return _one_object(cast("Sequence[StructType]", types), place)
    if kinds == {t.LongType, t.DoubleType}:
        return t.DoubleType()
    maps = [type_ for type_ in types if type_ != t.StructType()]  # an object that says nothing more
    if any(type_ != maps[0] for type_ in maps):
        names = sorted({type_.simpleString() for type_ in maps})
        raise SchemaRefused(f"{place.at} is of several types, which no column is: {', '.join(names)}")
    return maps[0]


def _one_object(objects: Sequence[StructType], place: Place) -> StructType:
    from pyspark.sql.types import StructField, StructType

    fields: dict[str, StructField] = {}
    for field in (field for one in objects for field in one.fields):
        if known := fields.get(field.name):
            both = _together([known.dataType, field.dataType], place.inside())
            field = StructField(field.name, both or known.dataType, metadata=known.metadata or field.metadata)
        fields[field.name] = field
    return StructType(list(fields.values()))
