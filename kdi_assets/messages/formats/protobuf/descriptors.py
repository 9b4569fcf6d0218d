"""Sets of descriptors, compiled from .proto files with protoc, and message classes made from them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.formats.registry.schema import Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

_MESSAGES, _NESTED, _FIELD = 4, 3, 2
"""Numbers of the lists in a FileDescriptorProto and in a DescriptorProto."""
_META = 1088
"""Number of Confluent's options of a message and of a field (``imports/confluent/meta.proto``)."""
GOOGLES = "google/protobuf/"
"""The path of Protobuf's own files."""
WRITES = "what protoc --include_imports --descriptor_set_out writes"
"""Every file comes after the files that it imports."""


@dataclass
class DescriptorMistake(Exception):
    """A set of descriptors, or a message in it, cannot be used; ``right`` says what could be."""

    message: str
    right: str = ""


class Descriptors:
    """A set of descriptors as ``protoc --include_imports --descriptor_set_out`` writes it.

    Attributes:
        comments: By the full name of a field, its comment in the .proto file; empty without ``--include_source_info``.
        tags: By the full name of a field, the tags in its option ``confluent.field_meta``, and those of its type in
            ``confluent.message_meta``; by that of a message, its own.

    Raises:
        DescriptorMistake: The bytes are no such set, or an import is missing.
    """

    def __init__(self, serialized: bytes) -> None:
        self._files = _files(serialized)
        self.comments = {name: text for file in self._files for name, text in _comments(file)}
        for file in self._files:
            file.ClearField("source_code_info")
        self._pool = _pool(self._files)
        self.tags = dict(self._tags())

    def _tags(self) -> Iterator[tuple[str, list[str]]]:
        messages = [message for file in self._files for message in _named_messages(file.message_type, file.package)]
        of_types = {f".{name}": self._tags_in(message.options) for name, message in messages}
        yield from ((name.removeprefix("."), tags) for name, tags in of_types.items() if tags)
        for name, entry in messages:
            if entry.options.map_entry:
                of_types[f".{name}"] = of_types.get(entry.field[1].type_name, [])  # 1: the value
        for name, message in messages:
            for field in message.field:
                if tags := [*self._tags_in(field.options), *of_types.get(field.type_name, ())]:
                    yield f"{name}.{field.name}", tags

    def _tags_in(self, options: Any) -> list[str]:
        from google.protobuf.empty_pb2 import Empty
        from google.protobuf.message_factory import GetMessageClass
        from google.protobuf.unknown_fields import UnknownFieldSet

        # As a message without fields: another library in this process may have made the options known.
        unknown_fields = UnknownFieldSet(Empty.FromString(options.SerializeToString()))
        texts = [unknown.data for unknown in unknown_fields if unknown.field_number == _META]
        if not texts:
            return []
        try:
            meta: Any = GetMessageClass(self._pool.FindMessageTypeByName("confluent.Meta"))
        except KeyError:  # the number is another one's
            return []
        return [str(tag) for text in texts for tag in meta.FromString(text).tags]

    def messages(self) -> list[str]:
        """Full names of its messages, without Protobuf's own."""
        ours = (file for file in self._files if not file.name.startswith(GOOGLES))
        return [name for file in ours for name in _names(file.message_type, file.package)]

    def message(self, full_name: str) -> Descriptor:
        """The descriptor of a message; raises ``DescriptorMistake`` if there is none."""
        try:
            return self._pool.FindMessageTypeByName(full_name)
        except KeyError:
            raise DescriptorMistake(f"there is no message {full_name!r} in it") from None

    def message_at(self, path: tuple[int, ...]) -> str | None:
        """Full name of the message at a message index's path in the last file; ``None`` if there is none."""
        file = self._files[-1]
        found: DescriptorProto | None = None
        names = [file.package] if file.package else []
        for place in path:
            found = _at_place(file.message_type if found is None else found.nested_type, place)
            if found is None:
                return None
            names.append(found.name)
        return ".".join(names) if found is not None else None

    def places(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """The path of a message index of each message in the last file, and its full name."""
        yield from _places(self._files[-1].message_type, self._files[-1].package, ())

    def checking(self, full_name: str) -> type[Any]:
        """The message's class with enumerations as numbers, so that no value is unknown and all keep their order.

        Extensions become unknown fields.
        """
        return self._rewritten(full_name, _enum_to_number)

    def unchecked(self, full_name: str) -> type[Any]:
        """The message's class with strings as bytes, which need not be UTF-8, and maps as lists of entries."""
        return self._rewritten(full_name, _string_to_bytes)

    def _rewritten(self, full_name: str, change: Callable[[DescriptorProto], None]) -> type[Any]:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message_factory import GetMessageClass

        files = []
        for file in self._files:
            copy = FileDescriptorProto()
            copy.CopyFrom(file)
            copy.ClearField("extension")
            for message in _all_messages(copy.message_type):
                message.ClearField("extension")
                change(message)
            files.append(copy)
        found: type[Any] = GetMessageClass(_pool(files).FindMessageTypeByName(full_name))
        return found


def _files(serialized: bytes) -> list[FileDescriptorProto]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(serialized).file)
    except DecodeError:
        files = []
    if not files or not all(file.name for file in files):
        raise DescriptorMistake("it is not a set of descriptors", WRITES)
    return files


def _comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """The full names of fields, and the comments above them or behind them on their line.

    Source: descriptor.proto, "SourceCodeInfo": a path holds numbers of fields of descriptors, and places in lists.
    """
    for location in file.source_code_info.location:
        text = (location.leading_comments or location.trailing_comments).strip()
        if text and (name := _field_at(file, list(location.path))):
            yield name, text


def _field_at(file: FileDescriptorProto, path: list[int]) -> str:
    """The full name of the field at a path; empty if something else is there."""
    names, messages = [file.package] if file.package else [], file.message_type
    first, *others = path or [0]
    while first == (_NESTED if messages is not file.message_type else _MESSAGES) and others:
        message = messages[others[0]]
        names.append(message.name)
        if others[1:2] == [_FIELD] and len(others) == 3:
            return ".".join([*names, message.field[others[2]].name])
        messages = message.nested_type
        first, *others = others[1:] or [0]
    return ""


def _pool(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added: set[str] = set()
    for file in files:
        if missing := [imported for imported in file.dependency if imported not in added]:
            raise DescriptorMistake(f"{file.name} imports {missing[0]}, which is not in it", WRITES)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as refused:
            raise DescriptorMistake(f"{file.name}: {refused}") from refused
        added.add(file.name)
    return pool


def _names(messages: Iterable[DescriptorProto], package: str) -> Iterator[str]:
    for message in messages:
        if not message.options.map_entry:
            name = f"{package}.{message.name}" if package else message.name
            yield name
            yield from _names(message.nested_type, name)


def _places(
    messages: Sequence[DescriptorProto], package: str, above: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], str]]:
    for place in range(len(messages)):
        if message := _at_place(messages, place):
            name = f"{package}.{message.name}" if package else message.name
            yield (*above, place), name
            yield from _places(message.nested_type, name, (*above, place))


def _at_place(messages: Sequence[DescriptorProto], place: int) -> DescriptorProto | None:
    """The message at a place of a message index.

    Clients that count in descriptors count the entries that maps become; Confluent's in Java counts the messages of the
    text. No message is an entry, so an index of one is of the latter.
    """
    found = messages[place] if place < len(messages) else None
    if found is None or not found.options.map_entry:
        return found
    of_text = [message for message in messages if not message.options.map_entry]
    return of_text[place] if place < len(of_text) else None


def _named_messages(messages: Iterable[DescriptorProto], package: str) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{package}.{message.name}" if package else message.name
        yield name, message
        yield from _named_messages(message.nested_type, name)


def _all_messages(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_type)


def _enum_to_number(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type == field.TYPE_ENUM:
            field.type = field.TYPE_INT32
            field.ClearField("type_name")
            field.ClearField("default_value")


def _string_to_bytes(message: DescriptorProto) -> None:
    _enum_to_number(message)
    message.options.ClearField("map_entry")  # bytes cannot be keys
    for field in message.field:
        if field.type == field.TYPE_STRING:
            field.type = field.TYPE_BYTES
            field.ClearField("default_value")


SECONDS = 60
_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
"""In the text of a schema: Confluent's serializers of before 2024-11 register maps as the entries that they become, and
protoc takes the option from nobody."""
_MARKED = "kdi_k9f1c_map_entry"
"""The name that an entry reserves until it is compiled. No schema has it by chance."""
_WRITTEN = ("--include_imports", "--include_source_info")  # the latter: comments
_LOGGED = re.compile(r"^[IW]\d{4} |warning:", re.IGNORECASE)


def compiled(file: str, *, folder: Path) -> bytes:
    """The descriptors of a file and of its imports.

    In a separate process, which takes a tenth of a second: protoc writes errors only to standard error, and the file
    may come from elsewhere.

    Args:
        file: Path from ``folder``, with slashes, as in an import.
        folder: The root of imports; Protobuf's own files, ``google/type`` and Confluent's are always found.

    Raises:
        DescriptorMistake: protoc refuses it; with protoc's message.
    """
    with TemporaryDirectory() as temporary:
        written = Path(temporary, "set")
        options = [f"-I{folder}", *_common_imports(), *_WRITTEN, f"--descriptor_set_out={written}"]
        protoc = [sys.executable, "-m", "grpc_tools.protoc", *options, file]
        try:
            done = subprocess.run(protoc, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            raise DescriptorMistake(f"protoc did not end within {SECONDS} seconds") from late
        if done.returncode:
            raise DescriptorMistake(_complaint(done.stderr).replace(f"{folder}/", ""), "what protoc compiles")
        return written.read_bytes()


@lru_cache(maxsize=512)
def schema_descriptors(schema: Schema) -> bytes:
    """The descriptors of a registry's schema and of its references.

    In this process, in four milliseconds, because a topic may have had many schemas.

    Raises:
        DescriptorMistake: It is no Protobuf schema, or protoc refuses it.
    """
    from grpc_tools import protoc

    if schema.type != "PROTOBUF":
        raise DescriptorMistake(f"schema {schema.id} is of type {schema.type}")
    file = f"schema-{schema.id}.proto"
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        for name, text in [*((r.name, r.text) for r in schema.references), (file, schema.text)]:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise DescriptorMistake(f"schema {schema.id} refers to {name}, which is not a valid import path")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_ENTRY.sub(f'reserved "{_MARKED}";', text), encoding="utf-8")
            except OSError as refused:  # one name is a folder in another
                raise DescriptorMistake(f"schema {schema.id} refers to {name}, which cannot be a file") from refused
        written = Path(temporary, "set")
        googles = Path(protoc.__file__).parent / "_proto"
        folders = [f"-I{folder}", *_common_imports(), f"-I{googles}"]
        options = [*folders, *_WRITTEN, f"--descriptor_set_out={written}"]
        if protoc.main(["protoc", *options, file]):
            return compiled(file, folder=folder)  # raises, with the message
        return _with_entries(written.read_bytes())


def _with_entries(serialized: bytes) -> bytes:
    """The descriptors with the option of an entry in place of its mark."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if _MARKED.encode() not in serialized:
        return serialized
    files = FileDescriptorSet.FromString(serialized)
    for message in (message for file in files.file for message in _all_messages(file.message_type)):
        if _MARKED in message.reserved_name:
            message.reserved_name.remove(_MARKED)
            message.options.map_entry = True
    return bytes(files.SerializeToString())


def _common_imports() -> list[str]:
    """Options for the folders of files that schemas import without bringing them: Confluent's, and ``google/type``."""
    from google.type import date_pb2

    googles = Path(date_pb2.__file__).parent.parent.parent
    return [f"-I{Path(__file__).with_name('imports')}", f"-I{googles}"]


def _complaint(stderr: str) -> str:
    """protoc's first complaint, without its log lines."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if not _LOGGED.search(line)), "protoc says nothing")
