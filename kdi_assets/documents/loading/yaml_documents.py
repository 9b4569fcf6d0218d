"""Read YAML documents with the line of every field; report each mistake with file, line, field and correction.

Dagster has its own reader. This one reads the same YAML (dates stay text there too) without Dagster, whose import would
cost `kdi status` half a second; it is some 15 times faster, and reports a key that is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.wording import did_you_mean

YamlValue: TypeAlias = "str | int | float | bool | bytes | None | list[YamlValue] | dict[object, YamlValue]"

DOCUMENT_KEYS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")  # Dagster's
LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
TIMESTAMP = "tag:yaml.org,2002:timestamp"
MERGE = "tag:yaml.org,2002:merge"


def sorted_mistakes(mistakes: Iterable[DocumentMistake]) -> tuple[DocumentMistake, ...]:
    """The mistakes by file, line and field; one that the tables of several topics have is one, with all of them."""
    topics: dict[tuple[str, int, str, str, str], dict[str, None]] = {}
    for one in mistakes:
        place = (one.file, one.line, one.field, one.message, one.right)
        topics.setdefault(place, {}).update(dict.fromkeys(one.topics))
    merged = [
        DocumentMistake(file=file, line=line, field=field, message=message, right=right, topics=tuple(of))
        for (file, line, field, message, right), of in topics.items()
    ]
    return tuple(sorted(merged, key=lambda mistake: (mistake.file, mistake.line, mistake.field)))


@dataclass(frozen=True)
class YamlDocument:
    """One document of a file.

    Attributes:
        file: Path for messages (``folder.display_path``).
        line: First line of the document, counted from 1.
        type: The component that it describes.
        attributes: The attributes as written.
        lines: By dotted path from the document's root, the line of each key.
        inherited: By field, the file of the folder's defaults that it comes from.
    """

    file: str
    line: int
    type: str
    attributes: YamlValue
    lines: dict[str, int]
    inherited: Mapping[str, YamlDocument] = field(default_factory=dict)

    def where(self, attribute: str) -> tuple[str, int]:
        """File and line of an attribute (dotted path), or of its parent if the attribute is missing."""
        if defaults := self.inherited.get(attribute.partition(".")[0]):
            return defaults.where(attribute)
        path = f"attributes.{attribute}"
        while path not in self.lines and "." in path:
            path = path.rpartition(".")[0]
        return self.file, self.lines.get(path, self.line)

    def place(self, attribute: str) -> str:
        """File and line of an attribute (dotted path) for messages."""
        file, line = self.where(attribute)
        return f"{file}:{line}"

    def mistake(self, attribute: str, message: str, right: str) -> DocumentMistake:
        """A mistake in an attribute (dotted path)."""
        return file_mistake(*self.where(attribute), attribute, message, right)


@dataclass
class Documents:
    """Documents that could be read, and mistakes in the others."""

    documents: list[YamlDocument] = field(default_factory=list)
    mistakes: list[DocumentMistake] = field(default_factory=list)


def parse(text: str, file: str) -> Documents:
    """Parse the documents of one file."""
    return _parsed(text, file, _DocumentReader.read)


def parse_fields(text: str, file: str) -> Documents:
    """Parse a file that has fields alone, without a type: a document whose attributes they are."""
    return _parsed(text, file, _DocumentReader.read_fields)


def _parsed(text: str, file: str, read: Callable[[_DocumentReader, yaml.Node], None]) -> Documents:
    parsed = Documents()
    try:
        for node in yaml.compose_all(text, LOADER):
            read(_DocumentReader(file, parsed), node)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        detail, right = (
            problem.problem or problem.context,
            "quote the value, or indent the line as its neighbours",
        )
        if mark and text[mark.index : mark.index + 1] == "\t":
            detail, right = "a tab stands where YAML takes spaces only", "indent by spaces"
        parsed.mistakes.append(
            file_mistake(file, mark.line + 1 if mark else 1, "document", f"is not YAML: {detail}", right)
        )
    except yaml.YAMLError as problem:  # a control character: no mark
        parsed.mistakes.append(file_mistake(file, 1, "document", f"is not YAML: {problem}", "remove the character"))
    if not parsed.documents and not parsed.mistakes:
        parsed.mistakes.append(file_mistake(file, 1, "document", "the file is empty", "give it a type and attributes"))
    return parsed


def file_mistake(file: str, line: int, path: str, message: str, right: str) -> DocumentMistake:
    """A mistake at a line of a file; ``path`` is the dotted path of the field."""
    return DocumentMistake(file=file, line=line, field=path, message=message, right=right)


class _DocumentReader:
    """Turns the node of one document into a ``YamlDocument``, with the line of every key."""

    def __init__(self, file: str, parsed: Documents) -> None:
        self._file = file
        self._parsed = parsed
        self._lines: dict[str, int] = {}
        self._scalars = LOADER("")

    def read(self, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        content = self._value(node, "")
        if not isinstance(content, dict) or not content:
            self._mistake(line, "document", "is not a mapping", "give it a type and attributes")
            return
        unknown = [str(key) for key in content if key not in DOCUMENT_KEYS]
        if unknown and "attributes" in content and content["attributes"] is None:
            message = f"has nothing below it, and {', '.join(unknown)} beside it"
            self._mistake(self._lines["attributes"], "attributes", message, "indent these by two spaces")
            return
        for key in unknown:
            self._mistake(self._lines[key], key, "no such key", did_you_mean(key, DOCUMENT_KEYS[:2]))
        if not isinstance(type_ := content.get("type"), str):
            self._mistake(line, "type", "is missing", "e.g. type: kdi_assets.components.TopicTable")
            return
        document = YamlDocument(self._file, line, type_, content.get("attributes"), self._lines)
        self._parsed.documents.append(document)

    def read_fields(self, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        fields = self._value(node, "attributes")
        if not isinstance(fields, dict) or self._parsed.documents:
            self._mistake(line, "document", "is not one mapping", "fields alone, e.g. owners: [team:web]")
            return
        self._parsed.documents.append(YamlDocument(self._file, line, "", fields, self._lines))

    def _mistake(self, line: int, path: str, message: str, right: str) -> None:
        self._parsed.mistakes.append(file_mistake(self._file, line, path.removeprefix("attributes."), message, right))

    def _value(self, node: yaml.Node, path: str) -> YamlValue:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, self._note_line(f"{path}.{n}", item)) for n, item in enumerate(node.value)]
        if node.tag == TIMESTAMP:
            return str(node.value)  # as Dagster does: a date is text until the field says what it is
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[object, YamlValue]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        self._scalars.flatten_mapping(node)
        mapping: dict[object, YamlValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._mistake(line, path or "document", "has a key that is not text", "quote the braces or brackets")
                continue
            key = self._scalar(key_node)
            below = self._note_line(f"{path}.{key!s}" if path else str(key), key_node)
            if key in mapping and written.count(key_node.value) > 1:
                self._mistake(line, below, "is written twice", "keep one of the two")
            mapping[key] = self._value(value_node, below)
        return mapping

    def _scalar(self, node: yaml.Node) -> str | int | float | bool | bytes | None:
        value: str | int | float | bool | bytes | None = self._scalars.construct_object(node)
        return value

    def _note_line(self, path: str, node: yaml.Node) -> str:
        self._lines[path] = node.start_mark.line + 1
        return path
