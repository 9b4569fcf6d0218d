"""Masks: what replaces secret values in the table and in dead letters.

A secret is data, never part of an expression: plans are shown, by Spark's UI and by its errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_format import Json
from kdi_assets.documents.model.message_rules import DeadLetterPayload, Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.streams.rules.errors import MaskSecretMissing
from kdi_assets.streams.rules.records import mistake, overlap, steps_to
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.table.column_tree import DATE, ColumnTree
from kdi_assets.streams.rules.tag_masks import has_schema, masks_of, refuse_unknown_tags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_END = "_k3d90"
_BY_SCHEMA = "mask_tagged"
"""The field of the document that demands the mask of a column which the schema tags."""
_BLOCK = 64  # bytes of a block of SHA-256, by which HMAC pads its key: RFC 2104


class MaskRule(MessageRule):
    """The rule of the fields ``mask``, ``mask_tagged`` and ``dead_letter_payload``."""

    def with_columns(self, messages: DataFrame, *, where: str) -> DataFrame:
        """Add the keys of hashes as columns.

        Raises:
            MaskSecretMissing: One of them is not in the environment.
        """
        keys: dict[str, bytes] = {}
        for column, mask in self._hashes.items():
            secret = os.environ.get(mask.secret, "")
            if not secret:
                raise MaskSecretMissing(stream=self.stream.name, column=column, variable=mask.secret)
            keys |= dict(zip(_key_columns(mask), _hmac_keys(secret.encode()), strict=True))
        if not keys:
            return messages
        ddl = ", ".join(f"{name(column)} binary" for column in keys)
        held = messages.sparkSession.createDataFrame([tuple(keys.values())], ddl)
        return messages.withColumns({column: held.select(column).scalar() for column in keys})

    def with_null_columns(self, messages: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        columns = [column for mask in self._hashes.values() for column in _key_columns(mask)]
        return messages.withColumns({column: F.lit(None).cast("binary") for column in columns}) if columns else messages

    def change_columns(self, tree: ColumnTree) -> None:
        stream = self.stream
        refuse_unknown_tags(stream)
        masks = masks_of(stream, tree.row)
        for path, mask in masks.items():
            field, lowered, ours = _field(stream, path), path.lower(), stream.coordinates.lower()
            if lowered == DATE or overlap(lowered, ours):
                raise mistake(stream, field, "the date and the coordinates of a row are never masked")
            if inner := [p for p in stream.mask if p != path and f"{p.lower()}.".startswith(f"{lowered}.")]:
                raise mistake(stream, field, f"mask.{inner[0]} lies in it: mask the whole or its parts")
            change = None if mask.how == "drop" else partial(masked, mask=mask)
            if field != _BY_SCHEMA:
                tree.change(path, field, change)
            elif change and tree.has(path):
                tree.change(path, field, change)
            elif tree.has(path):  # a schema that tags another field must not stop the stream
                tree.leave_out(path.split("."), field)
        if masks and stream.dead_letter_payload == "mask" and (why := unlocated(stream, tree.record)):
            raise mistake(stream, "dead_letter_payload", why)
        if stream.rescued and (why := _made_of_others(stream, tree.record)):
            raise mistake(stream, "rescued", f"it would keep what is masked: {why}")

    def change_dead_letter(self, columns: dict[str, str]) -> dict[str, str]:
        holds = letters_hold(self.stream, self.decoder.record)
        if holds == "keep":
            return columns
        value = "CAST(NULL AS BINARY)" if holds == "withhold" else self._masked_value(columns["value"])
        # A key often repeats what is masked in the value, and so may a header.
        hidden = {column: f"CASE WHEN false THEN {columns[column]} END" for column in ("key", "headers")}
        return {**columns, **hidden, "value": value, "withheld": "true"}

    def _masked_value(self, value: str) -> str:
        """Spark SQL of the JSON document in a message's value with its masks applied; null if there is none."""
        # Parsed before a marker of ours: by itself Spark's parser ignores what follows a document.
        text = f"CAST({value} AS STRING)"
        enclosed = f"""try_parse_json(concat('[', {text}, ',"{_END}"]'))"""
        elements = f"try_variant_get({enclosed}, '$', 'array<variant>')"
        document = f"CASE WHEN size({elements}) = 2 THEN get({elements}, 0) END"
        tree: dict[str, object] = {}
        for path, mask in masks_of(self.stream, self.decoder.record).items():
            node = tree
            *outer, last = self.decoder.uses.message_steps(steps_to(path, self.decoder.record))
            for step in outer:
                node = node.setdefault(step, {})  # type: ignore[assignment]
            node[last] = mask
        # Spark's code walks values by recursion: at 950 levels it ends the JVM.
        bounded = f"java_method('kdi.json.JsonDecoder', 'isBounded', {text}) = 'true'"
        return f"CASE WHEN {bounded} THEN CAST(to_json({_object(document, tree, 0)}) AS BINARY) END"

    @property
    def _hashes(self) -> dict[str, Mask]:
        by_tag = {f"columns tagged {tag}": mask for tag, mask in self.stream.mask_tagged.items()}
        return {column: mask for column, mask in {**self.stream.mask, **by_tag}.items() if mask.how == "hash"}


def _field(stream: Stream, path: str) -> str:
    """The field of the document that demands a mask."""
    fields = [f"{group}.{path}" for group in ("mask", "tags") if path in getattr(stream, group)]
    return fields[0] if fields else _BY_SCHEMA


def masked(value: str, mask: Mask) -> str:
    """Spark SQL that replaces a value; not for ``drop``."""
    text = f"CAST({value} AS STRING)"
    if mask.how == "keep_last":
        text = f"make_valid_utf8({text})"  # of bytes the end may be half a character, which other readers refuse
    if mask.how == "hash":
        inner, outer = (name(column) for column in _key_columns(mask))
        digest = f"unhex(sha2(concat({inner}, CAST({text} AS BINARY)), 256))"
        return f"CASE WHEN {value} IS NOT NULL THEN sha2(concat({outer}, {digest}), 256) END"
    if mask.how == "keep_last":
        hidden, kept = f"repeat('*', greatest(length({text}) - {mask.keep}, 0))", f"right({text}, {mask.keep})"
        none = f"repeat('*', length({text}))"
        return f"CASE WHEN length({text}) > {mask.keep} THEN concat({hidden}, {kept}) ELSE {none} END"
    return f"CASE WHEN false THEN {value} END"  # a null of the value's type


def letters_hold(stream: Stream, record: StructType) -> DeadLetterPayload:
    """What dead letters keep of a message. By default nothing that is masked."""
    payload = stream.dead_letter_payload or "mask"
    if payload != "mask":
        return payload
    if not masks_of(stream, record) and not (stream.mask_tagged and has_schema(stream)):
        return "keep"
    return "withhold" if unlocated(stream, record) else "mask"


def unlocated(stream: Stream, record: StructType) -> str:
    """Why the masked values cannot be found in a message; empty if they can."""
    if not isinstance(stream.format, Json) or stream.compression != "none":
        return "masked fields can be found only in messages of plain JSON"
    if stream.mask_tagged and has_schema(stream):
        return "a message may have a tagged field that this version of the schema lacks"
    return _made_of_others(stream, record)


def _made_of_others(stream: Stream, record: StructType) -> str:
    """Why the fields of a message that a masked column is made of are not known; empty if they are."""
    for path in masks_of(stream, record):
        if not steps_to(path, record) or any(overlap(path, column) for column in stream.columns):
            return f"{path} is made by an expression, so its value cannot be found in the message"
    return ""


def _object(value: str, tree: Mapping[str, object], depth: int) -> str:
    """A variant object whose fields are masked as the tree says, in any spelling; null where the value is no object."""
    key, item, fields = f"_kdi_k{depth}", f"_kdi_v{depth}", f"try_cast({value} AS MAP<STRING, VARIANT>)"
    dropped = [step for step, node in tree.items() if isinstance(node, Mask) and node.how == "drop"]
    names = ", ".join(f"lower({literal(step)})" for step in dropped)
    kept = f"map_filter({fields}, ({key}, {item}) -> lower({key}) NOT IN ({names}))" if dropped else fields
    cases = " ".join(f"WHEN lower({literal(step)}) THEN {_node(item, node, depth)}" for step, node in tree.items())
    return f"to_variant_object(transform_values({kept}, ({key}, {item}) -> CASE lower({key}) {cases} ELSE {item} END))"


def _node(item: str, node: object, depth: int) -> str:
    if isinstance(node, dict):
        return _object(item, node, depth + 1)
    if not isinstance(node, Mask) or node.how in ("drop", "null"):
        return "CAST(NULL AS VARIANT)"
    return f"CAST({masked(item, node)} AS VARIANT)"


def _key_columns(mask: Mask) -> tuple[str, str]:
    variable = mask.secret.encode().hex()  # variables differ by their spelling, columns do not
    return f"_kdi_inner_{variable}", f"_kdi_outer_{variable}"


def _hmac_keys(secret: bytes) -> tuple[bytes, bytes]:
    """The inner and the outer key of HMAC."""
    from hashlib import sha256

    key = (sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    return bytes(b ^ 0x36 for b in key), bytes(b ^ 0x5C for b in key)
