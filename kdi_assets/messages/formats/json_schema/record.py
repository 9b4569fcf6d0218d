"""The record that a JSON Schema describes, in Spark's types, everything nullable.

``required`` does not become NOT NULL: messages of other versions may lack the field. Only validation checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.messages.formats.comments import CONFLUENT_TAGS, UNKNOWN_TAG, described, tags_of, with_tags_of_whole
from kdi_assets.messages.formats.field_uses import WHY
from kdi_assets.messages.formats.json_schema.schema import JsonSchema, Place, SchemaRefused, Texts, nodes

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

OBJECT_KEYS = ("properties", "patternProperties")
ARRAY_KEYS = ("items", "prefixItems")
VALUE_KEYS = ("items", "additionalProperties", "propertyNames")
"""Keywords that describe what an array or a map holds."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
UNIONS = ("anyOf", "oneOf")
KEYS = ("type", "$ref", "enum", "const", "allOf", *OBJECT_KEYS, *ARRAY_KEYS, *UNIONS)
"""Keywords that describe a type."""
UNTIL_7 = ("draft-04", "draft-06", "draft-07")
"""Drafts that ignore keywords beside a reference."""


def record_of(schema: JsonSchema) -> StructType:
    """The type of the documents that a schema describes; a property that no column can hold is of type void.

    Tags of the schema itself are those of each property.

    Raises:
        SchemaRefused: It describes no objects.
    """
    from pyspark.sql.types import StructType

    texts = Texts(schema)
    texts.refuse_malformed()
    reader = _SchemaReader(texts)
    found = reader.type_of(texts.top())
    if not isinstance(found, StructType):
        raise SchemaRefused(f"# describes no object with properties but {found.simpleString()}")
    return with_tags_of_whole(found, reader.tags(texts.top(), of_values=False))


class _SchemaReader:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        named = texts.root.get("$schema", "") if isinstance(texts.root, dict) else ""
        self._only_reference = any(draft in named for draft in UNTIL_7)

    def type_of(self, place: Place) -> DataType:
        """The type of a column; raises ``SchemaRefused`` if there is none."""
        from pyspark.sql.types import StructType

        if not _describes_type(place.node):
            raise SchemaRefused(f"{place.at} has no type")
        found = self._type_or_none(place)
        if found is None:
            raise SchemaRefused(f"{place.at} can only be null")
        if isinstance(found, StructType) and not found.fields:
            raise SchemaRefused(f"{place.at} is an object without properties and without a type of its values")
        return found

    def _type_or_none(self, place: Place) -> DataType | None:
        """The type that all keywords of a place give together; an object may still lack properties here."""
        return _merged([t for t in self._types_of(place) if t is not None], place)

    def _types_of(self, place: Place) -> Iterator[DataType | None]:
        node = place.node
        if not isinstance(node, dict):
            raise SchemaRefused(f"{place.at} has no type")
        if "$ref" in node:
            yield self._type_or_none(self._texts.referred(place, node["$ref"]))
            if self._only_reference:
                return
        for kind in _kinds(place):
            yield self._of_kind(kind, place)
        for union in ("allOf", *UNIONS):
            for n, branch in enumerate(node.get(union, ())):
                if _describes_type(branch):  # other branches only restrict values
                    yield self._type_or_none(place.inside(union, n))

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
            raise SchemaRefused(f"{place.at} has a separate type for each position, and a column has one")
        if not isinstance(place.node.get("items"), dict):
            raise SchemaRefused(f"{place.at} has no type for its items")
        return ArrayType(self.type_of(place.inside("items")))

    def _object(self, place: Place) -> DataType:
        from pyspark.sql.types import MapType, StringType, StructType

        node = place.node
        if node.get("properties"):
            return StructType([self._field(name, place.inside("properties", name)) for name in node["properties"]])
        values = [place.inside("patternProperties", pattern) for pattern in node.get("patternProperties", ())]
        if _describes_type(node.get("additionalProperties")):
            values.append(place.inside("additionalProperties"))
        found = _merged([self.type_of(value) for value in values], place)
        return StructType() if found is None else MapType(StringType(), found)

    def _field(self, name: str, place: Place) -> StructField:
        from pyspark.sql.types import NullType, StructField

        node = place.node if isinstance(place.node, dict) else {}
        metadata = described({}, node.get("description"), self.tags(place))
        try:
            return StructField(name, self.type_of(place), metadata=metadata)
        except SchemaRefused as refused:
            metadata = described(metadata, "", self._tags_below(place, set()))  # kept as text it holds everything
            return StructField(name, NullType(), metadata={**metadata, WHY: refused.message})

    def tags(self, place: Place, *, of_values: bool = True) -> list[str]:
        """The tags of a place: its own, and those of each schema that gives it its type or that of its elements.

        Args:
            of_values: Whether tags of elements and values count.
        """
        node = place.node
        if not isinstance(node, dict):
            return []
        found = described({}, "", node.get(CONFLUENT_TAGS, ()))
        within = [place.inside(key, n) for key in ("allOf", *UNIONS) for n in range(len(node.get(key, ())))]
        if of_values:
            within += [place.inside(key) for key in VALUE_KEYS if isinstance(node.get(key), dict)]
            within += [place.inside("patternProperties", pattern) for pattern in node.get("patternProperties", ())]
        if "$ref" in node:
            try:
                within.append(self._texts.referred(place, node["$ref"]))
            except SchemaRefused:  # a type that contains itself; the reader of types says so
                return [*tags_of(found)]
        return [*tags_of(found), *(tag for inner in within for tag in self.tags(inner, of_values=of_values))]

    def _tags_below(self, place: Place, met: set[tuple[str, str]]) -> Iterator[str]:
        """The tags of everything at a place and below it, whether it gives a type or not.

        Args:
            met: The references that were followed.
        """
        for node in nodes(place.node):
            yield from tags_of(described({}, "", node.get(CONFLUENT_TAGS, ())))
            for reference in (node[key] for key in REFERENCES if isinstance(node.get(key), str)):
                if (place.base, reference) not in met:
                    met.add((place.base, reference))
                    try:
                        below = self._texts.referred(Place(node, place.base), reference)
                    except SchemaRefused:
                        yield UNKNOWN_TAG
                    else:
                        yield from self._tags_below(below, met)


def _describes_type(node: object) -> bool:
    return isinstance(node, dict) and any(key in node for key in KEYS)


def _kinds(place: Place) -> list[str]:
    """The types that a place names, or that its other keywords imply."""
    node = place.node
    if "type" in node:
        named = node["type"] if isinstance(node["type"], list) else [node["type"]]
        return list(dict.fromkeys(map(str, named)))
    if "enum" in node or "const" in node:
        return list(dict.fromkeys(_kind_of(value) for value in node.get("enum", [node.get("const")])))
    implied = {"object": OBJECT_KEYS, "array": ARRAY_KEYS}
    return [kind for kind, keys in implied.items() if any(key in node for key in keys)]


def _kind_of(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _merged(types: Sequence[DataType], place: Place) -> DataType | None:
    """One type for all; an object has the properties of each. Raises ``SchemaRefused`` if they differ."""
    from pyspark.sql import types as t

    if not types:
        return None
    kinds = {type(type_) for type_ in types}
    if kinds == {t.StructType}:
        return _one_object(cast("Sequence[StructType]", types), place)
    if kinds == {t.LongType, t.DoubleType}:
        return t.DoubleType()
    maps = [type_ for type_ in types if type_ != t.StructType()]  # an object without properties adds nothing
    if any(type_ != maps[0] for type_ in maps):
        names = sorted({type_.simpleString() for type_ in maps})
        raise SchemaRefused(f"{place.at} has several types, and a column has one: {', '.join(names)}")
    return maps[0]


def _one_object(objects: Sequence[StructType], place: Place) -> StructType:
    from pyspark.sql.types import StructField, StructType

    fields: dict[str, StructField] = {}
    for field in (field for one in objects for field in one.fields):
        if known := fields.get(field.name):
            both = _merged([known.dataType, field.dataType], place.inside())
            metadata = described(known.metadata or field.metadata, "", tags_of(field.metadata))
            field = StructField(field.name, both or known.dataType, metadata=metadata)
        fields[field.name] = field
    return StructType(list(fields.values()))
