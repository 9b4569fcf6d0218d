"""The topics that a pattern found: a text file beside the document, with a topic on each line.

A file and not the ledger: a change of it is reviewed as the documents are, and whoever reads the documents, with or
without brokers and lake, sees the same tables. ``#`` begins a comment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.loading.yaml_documents import file_mistake
from kdi_assets.documents.model.field_types import TOPIC_NAME, TOPIC_NAME_IS
from kdi_assets.documents.model.topic_tables import TopicTablesSpec

HEAD = "# The topics that the pattern of {name} found. `kdi check --accept` adds new ones; a line may be removed.\n"

_ENCODING = "utf-8-sig"  # as Notepad may write it: with a mark before the first line


def pin_file(document_file: str, name: str) -> Path:
    """The file of a document's pinned topics."""
    return Path(document_file).parent / f"{name}.topics"


def read_pins(file: Path, spec: TopicTablesSpec, mistakes: list[DocumentMistake]) -> dict[str, int]:
    """The pinned topics with their lines, counted from 1; empty if the file does not exist. Adds to the mistakes."""
    try:
        text = file.read_text(encoding=_ENCODING)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(file_mistake(str(file), 1, "topics", f"cannot be read: {error}", "make it readable, as UTF-8"))
        return {}
    pins: dict[str, int] = {}
    for line, topic in _topics(text):
        if wrong := _refused(topic, spec, pins):
            mistakes.append(file_mistake(str(file), line, "topics", *wrong))
        else:
            pins[topic] = line
    return pins


def add_pins(file: Path, name: str, topics: Iterable[str]) -> None:
    """Add topics to the file, each where the alphabet puts it; lines that are there stay as they are.

    Raises:
        OSError: The file cannot be written.
    """
    text = file.read_text(encoding=_ENCODING) if file.exists() else HEAD.format(name=name)
    lines = text.splitlines()
    known = {topic for _, topic in _topics(text)}
    for topic in topics:
        if topic not in known:
            later = (i for i, line in enumerate(lines) if (there := _topic(line)) and there > topic)
            lines.insert(next(later, len(lines)), topic)
    # Whoever reads meanwhile reads the old file or the new one; the sensor and `kdi check --accept` may both write.
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(new, file)


def _topics(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if topic := _topic(line):
            yield number, topic


def _topic(line: str) -> str:
    return line.partition("#")[0].strip()


def _refused(topic: str, spec: TopicTablesSpec, pins: dict[str, int]) -> tuple[str, str] | None:
    """Why a line is wrong, and what would be right."""
    if not re.fullmatch(TOPIC_NAME, topic):
        return f"{topic!r} is not a name that Kafka takes", TOPIC_NAME_IS
    if topic in pins:
        return f"{topic} is in line {pins[topic]} already", "keep one of the two"
    if not spec.topics.match(topic):
        said = f"{topic} does not match the pattern {spec.topics.pattern}, so its table would have no name"
        return said, "a pattern that matches it, or remove the line: its table stays, and nothing drains it any more"
    return None
