"""The documents of a folder, found where Dagster finds them; YAML files that nothing would load are mistakes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from kdi_assets.config.errors import DefsFolderMissing, DocumentMistake
from kdi_assets.config.yaml_documents import Documents, mistake_in, parse

LOADED_NAMES = ("defs.yaml", "defs.yml", "component.yaml")
"""What Dagster loads of a folder: the first of these that is there, and then nothing below it."""

FOLDER_TYPE = "dagster.DefsFolderComponent"  # the exception: below it Dagster goes on looking


def read_folder(folder: Path) -> Documents:
    """Read every document below ``folder``.

    Raises:
        DefsFolderMissing: There is no such folder.
    """
    if not folder.is_dir():
        raise DefsFolderMissing(folder=str(folder))
    found = Documents()
    _read_below(folder, found)
    return found


def _read_below(folder: Path, found: Documents) -> None:
    loaded = next((folder / name for name in LOADED_NAMES if (folder / name).is_file()), None)
    types = _read_file(loaded, found) if loaded else {FOLDER_TYPE}
    for path in _visible(folder):
        if path.is_dir() and FOLDER_TYPE in types:
            _read_below(path, found)
        elif not _all_known(types):
            continue  # another component may read YAML files of its own beside and below its document
        elif path.is_dir():
            found.mistakes += [_hidden(file, by=loaded) for file in _yaml_files(path)]
        elif _is_yaml(path) and path != loaded:
            found.mistakes.append(_not_loaded(path))


def _read_file(path: Path, found: Documents) -> set[str]:
    """Read one file; answer the types of its documents."""
    try:
        parsed = parse(path.read_text(encoding="utf-8"), shown(path))
    except UnicodeDecodeError as error:
        found.mistakes.append(mistake_in(shown(path), 1, "document", f"is not UTF-8: {error}", "save it as UTF-8"))
        return set()
    found.documents += parsed.documents
    found.mistakes += parsed.mistakes
    return {document.type for document in parsed.documents}


def _all_known(types: Collection[str]) -> bool:
    return all(type_ == FOLDER_TYPE or type_.startswith("kdi_assets.") for type_ in types)


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.name != "__pycache__"]


def _is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def _yaml_files(folder: Path) -> Iterator[Path]:
    for path in _visible(folder):
        if path.is_dir():
            yield from _yaml_files(path)
        elif _is_yaml(path):
            yield path


def _not_loaded(path: Path) -> DocumentMistake:
    right = f"move it to {shown(path.parent / path.stem / 'defs.yaml')}"
    if path.parent.joinpath("defs.yaml").exists():
        right = f"add it to {shown(path.parent / 'defs.yaml')}, behind a line ---"
    return mistake_in(shown(path), 1, "document", "nothing loads this file: Dagster reads defs.yaml only", right)


def _hidden(path: Path, *, by: Path | None) -> DocumentMistake:
    message = f"nothing loads this file: {shown(by) if by else 'a file above'} ends Dagster's search in its folder"
    return mistake_in(shown(path), 1, "document", message, "move the two into folders side by side")


def shown(path: Path) -> str:
    """The path as messages show it: relative where it lies below the working directory."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else path)
