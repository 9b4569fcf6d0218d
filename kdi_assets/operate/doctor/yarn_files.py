"""The files that Spark's settings for YARN name; without one of them no driver starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from kdi_assets.delta.storage import names_in, storage_failures
from kdi_assets.operate.doctor.disk import spark_default
from kdi_assets.operate.doctor.engine import default_file_system
from kdi_assets.operate.doctor.finding import NOTHING_STARTED, Finding, Trouble, fine, wrong
from kdi_assets.wording import counted

SETTINGS = (
    "spark.yarn.archive",
    "spark.yarn.jars",
    "spark.yarn.dist.archives",
    "spark.yarn.dist.files",
    "spark.yarn.dist.jars",
    "spark.archives",
    "spark.files",
    "spark.jars",
)
"""Source: Spark's docs, "Running Spark on YARN" and "Configuration": each takes URIs with commas between them."""


def yarn_files(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether each file on HDFS or on this machine is there; nothing if no setting names one.

    Files on every machine of the cluster (``local:``) and on other storages are not looked for.

    Raises:
        StorageFailed: HDFS does not answer.
    """
    named = [(s, uri) for s in SETTINGS for uri in _uris(spark_default(s, environment), environment)]
    missing = [(setting, uri) for setting, uri in named if not _is_there(uri)]
    for setting, uri in missing:
        trouble = Trouble(
            kind="no such file",
            happened=f"{setting} names {uri}, which is not there.",
            safe=NOTHING_STARTED,
            run="kdi doctor    (first put the file there, by hadoop fs -put on HDFS, or correct the setting in "
            "spark-defaults.conf)",
        )
        yield wrong("engine", "yarn", trouble, setting=setting, uri=uri)
    if named and not missing:
        yield fine("engine", "yarn", f"{counted(len(named), 'file')} of Spark's settings are there")


def _uris(value: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Of a setting's files those on HDFS, with its host and port, and those on this machine."""
    for each in filter(None, map(str.strip, value.split(","))):
        parts = urlsplit(each)  # behind `#` is the name that containers see
        default = urlsplit(default_file_system(environment))
        if parts.scheme == "hdfs":
            yield f"hdfs://{parts.netloc or default.netloc}{parts.path}"
        elif parts.scheme in ("", "file"):
            yield f"file://{Path(parts.path).absolute()}"


def _is_there(uri: str) -> bool:
    """Whether the file exists, or one that fits the pattern."""
    folder, _, name = uri.rpartition("/")
    with storage_failures(folder):
        return any(fnmatchcase(found, name) for found in names_in(folder))
