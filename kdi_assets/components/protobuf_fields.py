"""The fields that say which message of Protobuf a value is."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from kdi_assets.components.checks import wrong
from kdi_assets.components.folder import shown
from kdi_assets.components.mistakes import did_you_mean
from kdi_assets.components.schema_file_mistake import SchemaFileMistake
from kdi_assets.components.subject_fields import RegistryFields
from kdi_assets.message_format import Protobuf, ProtobufRegistry, SchemaRegistry


class ProtobufFields(RegistryFields):
    """Where the message is described; exactly one of ``registry``, ``descriptor_file`` and ``proto_file``."""

    descriptor_file: str = Field(
        default="",
        description="File of a set of descriptors, as `protoc --include_imports --descriptor_set_out=FILE` writes it,"
        " beside the document or below it.",
        examples=["orders.desc"],
    )
    proto_file: str = Field(
        default="",
        description="The .proto file itself, beside the document or below it; its imports begin in the document's"
        " folder. It is compiled whenever the document is read, which takes a tenth of a second.",
        examples=["orders.proto"],
    )
    message: str = Field(
        default="",
        description="Full name of the message that every value is; with a registry by default the first of the text.",
        examples=["shop.Order"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> ProtobufFields:
        if [bool(self.registry), bool(self.descriptor_file), bool(self.proto_file)].count(True) != 1:
            raise wrong("takes one of registry, descriptor_file and proto_file", "e.g. descriptor_file: orders.desc")
        if not self.message and not self.registry:
            raise wrong("names no message", "e.g. message: shop.Order")
        return self

    def format(self, folder: Path, *, topic: str, registry: SchemaRegistry | None) -> Protobuf | ProtobufRegistry:
        """The format that these fields describe.

        Args:
            folder: Of the document.
            topic: Names the subject where they do not.
            registry: The one that they name.

        Raises:
            SchemaFileMistake: A file is not there, describes no such message, or one that no table can hold.
        """
        if registry is not None:
            return ProtobufRegistry(self.schemas_of(registry, topic), self.message)
        return self._of_file(folder)

    def _of_file(self, folder: Path) -> Protobuf:
        from kdi_assets.formats.protobuf.descriptors import DescriptorMistake, Descriptors
        from kdi_assets.formats.protobuf.records import record_of

        field = "descriptor_file" if self.descriptor_file else "proto_file"
        file = folder / (self.descriptor_file or self.proto_file)
        try:
            serialized = self._descriptors(file, folder)
            known = Descriptors(serialized)
        except OSError as error:
            message, right = f"{shown(file)}: {error.strerror}", "a path from the folder of this document"
            raise SchemaFileMistake(f"format.protobuf.{field}", message, right) from error
        except DescriptorMistake as refused:
            message = f"{shown(file)}: {refused.message}"
            raise SchemaFileMistake(f"format.protobuf.{field}", message, refused.right) from refused
        names = known.messages()
        if self.message not in names:
            message = f"{shown(file)} describes no message {self.message!r}"
            raise SchemaFileMistake("format.protobuf.message", message, did_you_mean(self.message, names))
        try:
            record_of(known.message(self.message))
        except DescriptorMistake as refused:
            raise SchemaFileMistake("format.protobuf.message", refused.message, refused.right) from refused
        return Protobuf(shown(file), serialized, self.message)

    def _descriptors(self, file: Path, folder: Path) -> bytes:
        from kdi_assets.formats.protobuf.compiler import compiled

        if self.descriptor_file:
            return file.read_bytes()
        file.stat()  # protoc would say it in words of its own
        return compiled(self.proto_file, folder=folder)
