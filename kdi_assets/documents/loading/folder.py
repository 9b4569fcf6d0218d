"""Find and read the documents of a folder as Dagster does. A YAML file that Dagster would not load is a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kdi_assets.documents.loading.errors import DefsFolderMissing, DocumentMistake
from kdi_assets.documents.loading.folder_defaults import FILE as DEFAULTS
from kdi_assets.documents.loading.folder_defaults import FolderDefaults, wrong_defaults
from kdi_assets.documents.loading.yaml_documents import Documents, file_mistake, parse, parse_fields

DOCUMENT_NAMES = ("defs.yaml", "defs.yml", "component.yaml")
"""Dagster loads the first of these that a folder holds, and then nothing below the folder."""

FOLDER_TYPE = "dagster.DefsFolderComponent"  # the exception: Dagster does search below it


def read_folder(folder: Path) -> Documents:
    """Read every document below ``folder``.

    Raises:
        DefsFolderMissing: The folder does not exist.
    """
    if not folder.is_dir():
        raise DefsFolderMissing(folder=str(folder))
    found = Documents()
    _read_below(folder, found, FolderDefaults())
    return found


def document_in(folder: Path) -> Path | None:
    """The file that Dagster takes as the folder's document, if it has one."""
    return next((folder / name for name in DOCUMENT_NAMES if (folder / name).is_file()), None)


def is_ours(type_: str) -> bool:
    """Whether documents of a type are read here, and by no component of another package."""
    return type_ == FOLDER_TYPE or type_.startswith("kdi_assets.")


def _read_below(folder: Path, found: Documents, above: FolderDefaults) -> None:
    document, defaults = document_in(folder), _read_defaults(folder, found, above)
    types = _read_file(document, found, defaults) if document else {FOLDER_TYPE}
    only_ours = all(map(is_ours, types))
    for path in _visible(folder):
        if path.is_dir() and FOLDER_TYPE in types:
            _read_below(path, found, defaults)
        elif not only_ours:
            continue  # another component may read YAML files of its own beside and below its document
        elif path.is_dir():
            found.mistakes += [_below_document(file, document) for file in visible_files(path) if is_yaml(file)]
        elif is_yaml(path) and path != document and path.name != DEFAULTS:
            found.mistakes.append(_wrong_name(path))


def _read_file(path: Path, found: Documents, defaults: FolderDefaults) -> set[str]:
    """Read one file; return the types of its documents."""
    parsed = _parsed(path, parse)
    found.documents += [defaults.applied_to(document) for document in parsed.documents]
    found.mistakes += parsed.mistakes
    return {document.type for document in parsed.documents}


def _read_defaults(folder: Path, found: Documents, above: FolderDefaults) -> FolderDefaults:
    """The defaults that hold in a folder: those above, and those of its own file."""
    path = folder / DEFAULTS
    if not path.is_file():
        return above
    parsed = _parsed(path, parse_fields)
    found.mistakes += parsed.mistakes
    for document in parsed.documents:
        found.mistakes += wrong_defaults(document)
        above = above.below(document)
    return above


def _parsed(path: Path, read: Callable[[str, str], Documents]) -> Documents:
    file = display_path(path)
    try:
        return read(path.read_text(encoding="utf-8"), file)
    except UnicodeDecodeError as error:
        return Documents(mistakes=[file_mistake(file, 1, "document", f"is not UTF-8: {error}", "save it as UTF-8")])
    except OSError as error:
        said = f"cannot be read: {error.strerror}"
        return Documents(mistakes=[file_mistake(file, 1, "document", said, "make it readable")])


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.name != "__pycache__"]


def is_yaml(path: Path) -> bool:
    """Whether the file has the name of a YAML file."""
    return path.suffix in (".yaml", ".yml")


def visible_files(folder: Path) -> Iterator[Path]:
    """The files below a folder, and behind links; without hidden ones and Python's caches."""
    for path in _visible(folder):
        if path.is_dir():
            yield from visible_files(path)
        else:
            yield path


def _wrong_name(path: Path) -> DocumentMistake:
    right = f"move it to {display_path(path.parent / path.stem / 'defs.yaml')}"
    if path.parent.joinpath("defs.yaml").exists():
        right = f"add it to {display_path(path.parent / 'defs.yaml')}, after a line ---"
    message = "nothing loads this file: Dagster reads defs.yaml only"
    return file_mistake(display_path(path), 1, "document", message, right)


def _below_document(path: Path, document: Path | None) -> DocumentMistake:
    stop = display_path(document) if document else "a file above"
    message = f"nothing loads this file: {stop} ends Dagster's search in its folder"
    return file_mistake(display_path(path), 1, "document", message, "move the two into folders side by side")


def display_path(path: Path) -> str:
    """The path for messages: relative to the working directory if it lies below that."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else path)
