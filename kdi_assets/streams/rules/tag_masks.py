"""Tags become masks: the columns that ``mask_tagged`` means, once the record is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model import message_format as f
from kdi_assets.documents.model.message_rules import Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import tagged_paths
from kdi_assets.streams.rules.records import mistake

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def masks_of(stream: Stream, row: StructType) -> dict[str, Mask]:
    """Path of a column to its mask: those of ``mask``, and those of tags. None lies in another one.

    Args:
        row: The fields of a message, or of a row before expressions change it, with the tags of the schema.

    Raises:
        ShapeMistake: Two masks are meant for a column, or one for a part of a tagged column.
    """
    masks = dict(stream.mask)
    if not stream.mask_tagged:
        return masks
    tagged = tagged_paths(row)
    for path, declared in stream.tags.items():
        known = next((p for p in tagged if p.lower() == path.lower()), path)
        tagged[known] = tagged.get(known, frozenset()).union(declared)
    for path, tags in sorted(tagged.items(), key=lambda found: found[0].count(".")):  # outer ones first
        meant = {stream.mask_tagged[tag] for tag in tags if tag in stream.mask_tagged}
        if not meant or any(_is_in(path, other) for other in masks):
            continue
        if len(meant) > 1:
            raise mistake(stream, "mask_tagged", f"{path} is tagged {', '.join(sorted(tags))}, and their masks differ")
        if inner := [other for other in masks if _is_in(other, path)]:
            raise mistake(stream, f"mask.{inner[0]}", f"it lies in {path}, which is masked by its tag: mask {path}")
        masks[path] = meant.pop()
    return masks


def _is_in(path: str, other: str) -> bool:
    """Whether a path is another one or lies in it."""
    return f"{path.lower()}.".startswith(f"{other.lower()}.")


def has_schema(stream: Stream) -> bool:
    """Whether the messages have a schema, which may have tags and, in a later version, more tagged fields."""
    own = f.Framed | f.Avro | f.AvroContainer | f.AvroSingleObject | f.Protobuf
    return isinstance(stream.format, own) or _is_json_schema(stream)


def refuse_unknown_tags(stream: Stream) -> None:
    """Refuse fields of a document by which a field could pass whose tags nobody knows.

    Raises:
        ShapeMistake: With the first of them.
    """
    if not stream.mask_tagged or not _is_json_schema(stream):
        return
    said = "mask_tagged needs the tags of the JSON Schema"
    if stream.record_ddl:
        raise mistake(stream, "schema", f"{said}, and this line replaces its record: remove it")
    if stream.rescued:
        raise mistake(stream, "rescued", f"{said}, and it would keep fields that this version of it does not have")


def _is_json_schema(stream: Stream) -> bool:
    of = stream.format
    return isinstance(of, f.JsonRegistry) or (isinstance(of, f.Json) and of.schema is not None)
