"""Comments and tags of a record's fields, by what a schema says of them; the table's columns have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

COMMENT = "comment"
"""Spark's name in a field's metadata."""
TAGS = "kdi.tags"
"""Our name in it: the names of tags, in lower case."""
UNKNOWN_TAG = "?"
"""In place of a tag, while a schema is read: a schema that is missing could have any."""
CONFLUENT_TAGS = "confluent:tags"
"""The property of a field, or of its type, in Avro and JSON Schema.

Source: Confluent Schema Registry, "Data contracts", "Tags".
"""


def described(metadata: Mapping[str, Any], comment: object, tags: object = ()) -> dict[str, Any]:
    """A field's metadata with a comment and tags; unchanged without text and names."""
    text = " ".join(comment.split()) if isinstance(comment, str) else ""
    names = {*tags_of(metadata), *_names(tags)}
    said: dict[str, Any] = {**({COMMENT: text} if text else {}), **({TAGS: sorted(names)} if names else {})}
    return {**metadata, **said}


def tags_of(metadata: Mapping[str, Any]) -> Collection[str]:
    """The tags in a field's metadata."""
    found: list[str] = metadata.get(TAGS, [])
    return found


def with_tags_of_whole(record: StructType, tags: object) -> StructType:
    """The record with the tags of the whole at each of its fields: the whole is no column."""
    from pyspark.sql.types import StructField, StructType

    fields = (StructField(f.name, f.dataType, f.nullable, described(f.metadata, "", tags)) for f in record.fields)
    return StructType([*fields])


def tagged_paths(type_: DataType, path: str = "") -> dict[str, frozenset[str]]:
    """Path of a field to its tags, for the fields that have some.

    Fields inside an array or map are counted to the outermost one, because nothing is masked inside of it.

    Args:
        path: Of the struct with these fields.
    """
    from pyspark.sql.types import StructType

    found: dict[str, frozenset[str]] = {}
    for field in type_.fields if isinstance(type_, StructType) else ():
        here = f"{path}.{field.name}" if path else field.name
        inner = tagged_paths(field.dataType, here)
        own = frozenset(tags_of(field.metadata))
        if not isinstance(field.dataType, StructType):
            own = own.union(*_tags_inside(field.dataType))
        found |= {**({here: own} if own else {}), **inner}
    return found


def _tags_inside(type_: DataType) -> Iterable[frozenset[str]]:
    """The tags of all fields inside the elements of an array, or the keys and values of a map."""
    from pyspark.sql.types import ArrayType, MapType

    match type_:
        case ArrayType():
            within = [type_.elementType]
        case MapType():
            within = [type_.keyType, type_.valueType]
        case _:
            return
    for inner in within:
        yield from tagged_paths(inner).values()
        yield from _tags_inside(inner)


def _names(tags: object) -> Iterable[str]:
    """Tags as schemas write them: names, or one name; other values are none."""
    written = [tags] if isinstance(tags, str) else tags if isinstance(tags, Iterable) else ()
    return (tag.strip().lower() for tag in written if isinstance(tag, str) and tag.strip())


def tags_by_path(fields: Iterable[Mapping[str, Any]], path: str = "") -> dict[str, Collection[str]]:
    """Path of a column to its tags, of columns as the Delta log has them; ``[]`` is inside an array or map.

    Args:
        path: Of the struct with these columns, with a dot at its end.
    """
    found: dict[str, Collection[str]] = {}
    for field in fields:
        here = f"{path}{field['name']}"
        if tags := tags_of(field.get("metadata", {})):
            found[here] = tags
        for inside, type_ in _structs(field["type"], here):
            found |= tags_by_path(type_["fields"], f"{inside}.")
    return found


def _structs(type_: Any, path: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The structs that a column is made of, with their paths."""
    if not isinstance(type_, Mapping):
        return
    if type_["type"] == "struct":
        yield path, type_
    for key in ("elementType", "keyType", "valueType"):
        if key in type_:
            yield from _structs(type_[key], f"{path}[]")


def column_tags(field: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a column and of what it holds: ``true``, or the paths inside of it that have the tag."""
    found: dict[str, list[str]] = {}
    for path, tags in tags_by_path([field]).items():
        for tag in tags:
            found.setdefault(tag, []).append(path)
    return {
        tag: "true" if field["name"] in paths else ", ".join(p.removeprefix(field["name"]).lstrip(".") for p in paths)
        for tag, paths in found.items()
    }


def without_comments(type_: Any) -> Any:
    """A type without metadata, as decoders give records: Spark compares the types of a Python function's results."""
    from pyspark.sql import types as t

    match type_:
        case t.StructType():
            fields = [t.StructField(f.name, without_comments(f.dataType), f.nullable) for f in type_.fields]
            return t.StructType(fields)
        case t.ArrayType():
            return t.ArrayType(without_comments(type_.elementType), type_.containsNull)
        case t.MapType():
            return t.MapType(type_.keyType, without_comments(type_.valueType), type_.valueContainsNull)
    return type_
