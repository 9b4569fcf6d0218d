"""The code location: assets of the documents, topics, sensors, checks and resources."""

from __future__ import annotations

import sys
import warnings
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType

import dagster as dg

from kdi_assets.components.names import forget_starts
from kdi_assets.components.refined_groups import groups_by_document
from kdi_assets.components.topics import topic_assets
from kdi_assets.documents.loading.loader import cached_streams, defs_folder, load_folder_once
from kdi_assets.inherited_definitions import FolderDefinitions, inherited_definitions
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.check_tables import check_schedules, table_check_job
from kdi_assets.sensors.downstream import downstream_sensors
from kdi_assets.sensors.downstream_alerts import alert_sensors
from kdi_assets.sensors.follow import follow_sensors
from kdi_assets.sensors.freshness import freshness_sensors
from kdi_assets.sensors.lag import lag_sensors
from kdi_assets.sensors.new_topics import new_topic_sensors
from kdi_assets.sensors.upkeep import upkeep_jobs, upkeep_schedules

PACKAGE_DEFS = Path(__file__).parent / "defs"


@dg.definitions
def defs() -> dg.Definitions:
    return definitions_for(defs_folder())


def definitions_for(folder: Path, *own: dg.Definitions) -> dg.Definitions:
    """What Dagster loads for a folder of documents: assets, checks, resources, sensors, jobs, schedules, executor.

    Args:
        folder: With the YAML documents, and Python files beside them.
        own: The rest of the code location. Its assets with ``on_new_upstream_data()`` are requested as those of Python
            files in the folder are. It must not have an executor or a resource ``spark`` of its own.

    Raises:
        Mistakes: Documents are wrong; it names every mistake of every document.
        DefsFolderMissing: The folder does not exist.
    """
    for forget in (forget_starts, cached_streams.cache_clear):
        forget()  # a code server loads again in its process, and documents or older rows may have come
    inherited = inherited_definitions(folder)
    if inherited and not own:
        return inherited.location
    return _with_downstream(inherited.of_documents if inherited else _of_documents(folder), *own)


def folder_definitions(folder: Path) -> FolderDefinitions:
    """The definitions that runs inherit, with what Dagster makes of them for a run; raises as ``definitions_for``."""
    of_documents = _of_documents(folder)
    location = _with_downstream(of_documents)
    repository = location.get_repository_def()  # Dagster keeps it with the definitions, and the job with it
    if repository.has_implicit_global_asset_job_def():
        repository.get_implicit_global_asset_job_def()
    return FolderDefinitions(of_documents, location)


def _with_downstream(*parts: dg.Definitions) -> dg.Definitions:
    location = dg.Definitions.merge(*parts)
    return dg.Definitions.merge(location, dg.Definitions(sensors=downstream_sensors(location)))


def _of_documents(folder: Path) -> dg.Definitions:
    groups_by_document.cache_clear()  # their dates are those of tables
    # Before Dagster reads the documents: it would stop at the first mistake.
    documents = load_folder_once(folder)
    streams, refined, served = documents.streams.values(), documents.refined.values(), documents.served.values()
    checks, upkeep = table_check_job(streams), upkeep_jobs([*streams, *refined], served)
    shared = dg.Definitions(
        assets=topic_assets(streams),  # shared by streams; the components define tables and checks
        resources={"spark": SparkResource()},
        sensors=[
            *lag_sensors(list(streams)),
            *new_topic_sensors(folder, documents),
            *freshness_sensors(streams),
            *follow_sensors(refined, served, streams),
            *alert_sensors(refined, served, streams),
        ],
        jobs=[checks, *upkeep],
        schedules=[*check_schedules(checks), *upkeep_schedules(upkeep)],
        executor=dg.in_process_executor,  # one run, many streams, one Spark session
    )
    return dg.Definitions.merge(component_definitions(folder), shared)


def component_definitions(folder: Path) -> dg.Definitions:
    """The definitions of the documents in ``folder``, and of Python files beside them.

    ``dagster.load_from_defs_folder`` needs a dg.toml above the folder, which an installed package does not have. It
    also describes every component of every installed package to the UI, which costs each run 2 s of CPU.
    """
    folder = folder.resolve()
    if not _has_definitions(folder):
        return dg.Definitions()  # Dagster's tree refuses a folder without anything to load
    tree = dg.ComponentTree.from_module(defs_module=_package(folder), project_root=folder.parent)
    with warnings.catch_warnings():
        # As in `load_from_defs_folder`: Dagster's loader uses its own previews, and deprecated parts of pydantic.
        warnings.filterwarnings("ignore", module="dagster")
        return dg.Definitions.merge(tree.build_defs(folder), dg.Definitions(component_tree=tree))


def _has_definitions(folder: Path) -> bool:
    found = (path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".py"))
    return any(not path.relative_to(folder).parts[0].startswith(".") for path in found)


def _package(folder: Path) -> ModuleType:
    """The folder as a package, so that Python files in it can be imported."""
    if folder == PACKAGE_DEFS.resolve():
        return import_module("kdi_assets.defs")
    # A name per folder: two folders in one process must not share modules.
    module = ModuleType(f"kdi_defs_{sha256(str(folder).encode()).hexdigest()[:8]}")
    module.__file__ = str(folder / "__init__.py")
    module.__path__ = [str(folder)]
    sys.modules[module.__name__] = module
    return module
