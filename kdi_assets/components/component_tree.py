"""Dagster's component tree over any folder."""

from __future__ import annotations

import sys
import warnings
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType

import dagster as dg

OWN = Path(__file__).parent.parent / "defs"


def component_definitions(folder: Path) -> dg.Definitions:
    """What the documents of ``folder`` define, with what Python files lie beside them.

    ``dagster.load_from_defs_folder`` would ask for a dg.toml above the folder: an installed package has none. It would
    also describe every component of every installed package to the UI, which costs 2 s of CPU, and each run pays it.
    """
    folder = folder.resolve()
    if not _holds_anything(folder):
        return dg.Definitions()  # Dagster's tree takes no folder without anything to load
    tree = dg.ComponentTree.from_module(defs_module=_module(folder), project_root=folder.parent)
    with warnings.catch_warnings():
        # As `load_from_defs_folder` does: parts of Dagster's own loader are a preview, or use what pydantic gave up.
        warnings.filterwarnings("ignore", module="dagster")
        return dg.Definitions.merge(tree.build_defs(folder), dg.Definitions(component_tree=tree))


def _holds_anything(folder: Path) -> bool:
    found = (path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".py"))
    return any(not part.startswith(".") for path in found for part in path.relative_to(folder).parts[:1])


def _module(folder: Path) -> ModuleType:
    """The folder as a package, so that Python files in it can be imported."""
    if folder == OWN.resolve():
        return import_module("kdi_assets.defs")
    # A name of its own for each folder: two in one process must not share modules.
    module = ModuleType(f"kdi_defs_{sha256(str(folder).encode()).hexdigest()[:8]}")
    module.__file__ = str(folder / "__init__.py")
    module.__path__ = [str(folder)]
    sys.modules[module.__name__] = module
    return module
