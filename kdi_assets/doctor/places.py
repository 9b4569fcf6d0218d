"""Where things lie on this machine: the lake if it is local, what is made, and Spark's scratch space."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kdi_assets.runtime.driver import driver_scratch
from kdi_assets.settings import Settings

JAVAS_TEMPORARY = Path("/tmp")  # noqa: S108 - what Java takes on Linux, whatever TMPDIR says


def places(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Folders by what they are for; they need not exist."""
    lake = local_path(settings.lake)
    scratch = spark_local_dirs(environment) or [_scratch_of_ours(settings)]
    named = {f"spark {n}" if len(scratch) > 1 else "spark": path for n, path in enumerate(scratch, 1)}
    return {**({"lake": lake} if lake else {}), "home": settings.home, **named}


def local_path(uri: str) -> Path | None:
    """The path of a lake that is a folder of this machine, else ``None``."""
    parts = urlsplit(uri)
    if not parts.scheme:
        return Path(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def nearest_existing(path: Path) -> Path:
    """The path, or the folder in which it would be made."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def spark_local_dirs(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where Spark's own configuration lets the driver's Spark spill to; empty if it says nothing.

    Source: Spark's docs, "Configuration": ``SPARK_LOCAL_DIRS`` goes before ``spark.local.dir``.
    """
    told = environment.get("SPARK_LOCAL_DIRS") or _spark_default("spark.local.dir", environment)
    return [Path(path) for path in told.split(",")] if told else []


def _scratch_of_ours(settings: Settings) -> Path:
    return driver_scratch(settings.home) if settings.driver == "shared" else JAVAS_TEMPORARY


def _spark_default(key: str, environment: Mapping[str, str]) -> str:
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if (home := environment.get("SPARK_HOME")) else "")
    file = Path(folder, "spark-defaults.conf")
    if not folder or not file.is_file():
        return ""
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines())
    return next((line[1].strip() for line in lines if len(line) == 2 and line[0].rstrip("=:") == key), "")
