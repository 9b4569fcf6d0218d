"""Read a YAML file into a pydantic model; every mistake has its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from kdi_assets.tools.conformance.errors import FileMistakes

YamlModel = TypeVar("YamlModel", bound="FileModel")


class FileModel(BaseModel):
    """A part of a file; a field that it does not have is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_file(path: Path, model: type[YamlModel]) -> YamlModel:
    """The file's one document.

    Raises:
        FileMistakes: It cannot be read, is no YAML, or does not fit the model.
    """
    try:
        text = path.read_text()
        node = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as unreadable:
        raise FileMistakes(place=str(path), mistakes=(f": cannot be read: {unreadable}",)) from unreadable
    except yaml.YAMLError as wrong:
        mark = getattr(wrong, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        detail = getattr(wrong, "problem", None) or str(wrong)
        raise FileMistakes(place=str(path), mistakes=(f"{line} is not YAML: {detail}",)) from wrong
    lines = dict(_lines(node, ())) if node else {}
    return validated(content, model, place=str(path), lines=lines)


def validated(
    content: Any, model: type[YamlModel], *, place: str, lines: dict[tuple[str | int, ...], int] | None = None
) -> YamlModel:
    """The content as a model.

    Args:
        lines: The line of each path, where the content is from a file.

    Raises:
        FileMistakes: It does not fit; all mistakes at once.
    """
    try:
        return model.model_validate(content)
    except ValidationError as wrong:
        told = sorted({_told(error, lines or {}) for error in wrong.errors()})
        raise FileMistakes(place=place, mistakes=tuple(text for _, text in told)) from wrong


def _told(error: Any, lines: dict[tuple[str | int, ...], int]) -> tuple[int, str]:
    path = tuple(error["loc"])
    known = path
    while known and known not in lines:
        known = known[:-1]
    line = lines.get(known, 0)
    field = ".".join(map(str, path))
    message = error["msg"].removeprefix("Value error, ")
    return line, f"{f':{line}' if line else ''} {f'{field}: ' if field else ''}{message}"


def _lines(node: yaml.Node, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, key.value)
            yield from _lines(value, below)
            yield below, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _lines(item, (*path, number))
