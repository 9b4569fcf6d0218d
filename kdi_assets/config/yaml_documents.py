"""YAML documents with the line of every field, and what is wrong in them: file, line, field, what would be right.

Dagster has a reader of its own. This one takes the same YAML (dates stay text, as there) but loads no Dagster, which
would cost `kdi status` half a second and more, is some 15 times faster, and reports a key written twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from kdi_assets.config.errors import DocumentMistake
from kdi_assets.wording import did_you_mean

YamlValue: TypeAlias = "str | int | float | bool | bytes | None | list[YamlValue] | dict[object, YamlValue]"

DOCUMENT_KEYS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")  # Dagster's
LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
TIMESTAMP = "tag:yaml.org,2002:timestamp"
MERGE = "tag:yaml.org,2002:merge"


def in_order(mistakes: Iterable[DocumentMistake]) -> tuple[DocumentMistake, ...]:
    """By file, line and field."""
    return tuple(sorted(mistakes, key=lambda mistake: (mistake.file, mistake.line, mistake.field)))


@dataclass(frozen=True)
class YamlDocument:
    """One document of a file.

    Attributes:
        file: Path, as messages show it.
        line: Where the document begins, counted from 1.
        type: The component it describes.
        attributes: What it says, as written.
        lines: Dotted path from the document's root to the line of its key.
    """

    file: str
    line: int
    type: str
    attributes: YamlValue
    lines: dict[str, int]

    def line_of(self, attribute: str) -> int:
        """The line of an attribute (dotted path), or of what it is missing from."""
        path = f"attributes.{attribute}"
        while path not in self.lines and "." in path:
            path = path.rpartition(".")[0]
        return self.lines.get(path, self.line)

    def mistake(self, attribute: str, message: str, right: str) -> DocumentMistake:
        """A mistake in an attribute (dotted path)."""
        line = self.line_of(attribute)
        return DocumentMistake(file=self.file, line=line, field=attribute, message=message, right=right)


@dataclass
class Documents:
    """What was read, and what could not be."""

    documents: list[YamlDocument] = field(default_factory=list)
    mistakes: list[DocumentMistake] = field(default_factory=list)


def parse(text: str, file: str) -> Documents:
    """The documents of one file; a document that cannot be one is among the mistakes."""
    parsed = Documents()
    try:
        for node in yaml.compose_all(text, LOADER):
            _DocumentReader(file, parsed).read(node)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        said = problem.problem or problem.context
        parsed.mistakes.append(
            mistake_in(file, mark.line + 1 if mark else 1, "document", f"is not YAML: {said}", "quote it or indent it")
        )
    except yaml.YAMLError as problem:  # a control character: no mark
        parsed.mistakes.append(mistake_in(file, 1, "document", f"is not YAML: {problem}", "remove the character"))
    if not parsed.documents and not parsed.mistakes:
        parsed.mistakes.append(mistake_in(file, 1, "document", "the file is empty", "give it a type and attributes"))
    return parsed


def mistake_in(file: str, line: int, path: str, message: str, right: str) -> DocumentMistake:
    """A mistake outside the attributes of a document."""
    return DocumentMistake(file=file, line=line, field=path, message=message, right=right)


class _DocumentReader:
    """Turns the node of one document into a ``YamlDocument``; notes the line of every key on the way."""

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
        for key in content.keys() - set(DOCUMENT_KEYS):
            self._mistake(self._lines[str(key)], str(key), "no such key", did_you_mean(str(key), DOCUMENT_KEYS[:2]))
        if not isinstance(type_ := content.get("type"), str):
            self._mistake(line, "type", "is missing", "e.g. type: kdi_assets.components.TopicTable")
            return
        document = YamlDocument(self._file, line, type_, content.get("attributes"), self._lines)
        self._parsed.documents.append(document)

    def _mistake(self, line: int, path: str, message: str, right: str) -> None:
        self._parsed.mistakes.append(mistake_in(self._file, line, path.removeprefix("attributes."), message, right))

    def _value(self, node: yaml.Node, path: str) -> YamlValue:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, self._noted(f"{path}.{n}", item)) for n, item in enumerate(node.value)]
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
            below = self._noted(f"{path}.{key!s}" if path else str(key), key_node)
            if key in mapping and written.count(key_node.value) > 1:
                self._mistake(line, below, "is written twice", "keep one of the two")
            mapping[key] = self._value(value_node, below)
        return mapping

    def _scalar(self, node: yaml.Node) -> str | int | float | bool | bytes | None:
        value: str | int | float | bool | bytes | None = self._scalars.construct_object(node)
        return value

    def _noted(self, path: str, node: yaml.Node) -> str:
        self._lines[path] = node.start_mark.line + 1
        return path
