"""The cluster that runs Spark's tasks, asked without a JVM: a standalone master or YARN; Kubernetes is beside it."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener
from xml.etree import ElementTree

from kdi_assets.operate.doctor.disk import spark_default
from kdi_assets.operate.doctor.finding import NOTHING_STARTED, Finding, Trouble, Unanswered, fine, warning, wrong
from kdi_assets.operate.doctor.kubernetes import kubernetes
from kdi_assets.runtime.cluster import runs_here
from kdi_assets.settings import Settings

ANSWER_SECONDS, ALL_SECONDS = 4.0, 8.0
"""Of each server that is asked, and of all together; an examination may take ten."""


def master_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Spark's master: that of the settings, or of Spark's own configuration; may be empty."""
    return settings.spark_master or spark_default("spark.master", environment)


def engine(master: str, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether the cluster answers, and would give this process what it asks for; nothing if ``master`` is local."""
    if master and not runs_here(master) and (missing := _no_settings(environment.get("SPARK_CONF_DIR", ""))):
        yield missing
    if master.startswith("spark://"):
        yield standalone(master)
    elif master == "yarn":
        yield yarn(environment)
    elif master.startswith("k8s://"):
        yield kubernetes(master, environment)


def _no_settings(folder: str) -> Finding | None:
    """That there are no settings for the cluster where they are said to be; Spark goes on without them."""
    if not folder or Path(folder).is_dir():
        return None
    trouble = Trouble(
        kind="no settings of Spark",
        happened=f"SPARK_CONF_DIR names {folder}, which is not a folder here.",
        safe="drains run with Spark's defaults: its queue or namespace, and the sizes of its executors.",
        run="kdi doctor    (with SPARK_CONF_DIR as the folder of spark-defaults.conf; in a pod of the chart, in the "
        "container driver)",
    )
    return warning("engine", folder, trouble)


def driver_host(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether the name by which executors reach the driver is one here; nothing if Spark chooses it."""
    host = spark_default("spark.driver.host", environment)
    if not host or "${" in host:  # which Spark replaces
        return
    try:
        found = socket.getaddrinfo(host.strip("[]"), None)[0][4][0]
    except OSError as unknown:
        trouble = Trouble(
            kind="driver's name unknown",
            happened=f"spark.driver.host is {host}, a name that this machine does not know: {unknown}.",
            safe="nothing was started; executors that do not know it either end at once, and a drain gets none.",
            run="kdi doctor    (first correct spark.driver.host in spark-defaults.conf: the name or address by which "
            "executors reach the driver)",
        )
        yield warning("engine", host, trouble)
    else:
        yield fine("engine", host, f"executors are to reach the driver at {found}", address=found)


def standalone(master: str) -> Finding:
    """Whether one of the masters accepts connections."""
    silent: list[str] = []
    addresses = master.removeprefix("spark://").split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _answer_seconds(addresses)).close()
        except (OSError, ValueError) as refused:
            silent.append(f"{address}: {refused}")
        else:
            return fine("engine", master, f"{address} accepts connections", address=address)
    return wrong("engine", master, _unanswered("master silent", f"no Spark master answers: {'; '.join(silent)}."))


def yarn(environment: Mapping[str, str] = os.environ) -> Finding:
    """Whether the ResourceManager answers, and has the queue."""
    folder = _hadoop_folder(environment)
    try:
        properties = _hadoop_properties(Path(folder)) if folder else {}
    except (OSError, ElementTree.ParseError) as unread:
        return wrong("engine", "yarn", _no_configuration(f"{folder} cannot be read: {unread}"))
    if not properties:
        said = f"{folder} has neither core-site.xml nor yarn-site.xml" if folder else "HADOOP_CONF_DIR is not set"
        return wrong("engine", "yarn", _no_configuration(said))
    silent: list[str] = []
    addresses = _resource_managers(properties)
    for address in addresses:
        try:
            scheduler = _json_of(f"{address}/ws/v1/cluster/scheduler", seconds=_answer_seconds(addresses))
        except (OSError, ValueError) as refused:
            if unexamined := _not_for_us(f"the ResourceManager {address}", refused):
                return warning("engine", "yarn", unexamined)
            silent.append(f"{address}: {refused}")
        else:
            return _queue(spark_default("spark.yarn.queue", environment) or "default", scheduler, address)
    said = f"no ResourceManager of {folder} answers: {'; '.join(silent)}."
    return wrong("engine", "yarn", _unanswered("YARN silent", said))


def default_file_system(environment: Mapping[str, str] = os.environ) -> str:
    """Where Spark looks for paths without a scheme, as a URI; this disk, if Hadoop's configuration cannot be read."""
    folder = _hadoop_folder(environment)
    try:
        properties = _hadoop_properties(Path(folder)) if folder else {}
    except (OSError, ElementTree.ParseError):  # the examination of the engine says it
        properties = {}
    return properties.get("fs.defaultFS", "file:///")


def _hadoop_folder(environment: Mapping[str, str]) -> str:
    return environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR") or ""


def _answer_seconds(addresses: Sequence[str]) -> float:
    """How long each of them may take, so that the error names them and is not that of the examination's time limit."""
    return min(ANSWER_SECONDS, ALL_SECONDS / len(addresses))


def _queue(queue: str, scheduler: Mapping[str, Any], address: str) -> Finding:
    info = scheduler["scheduler"]["schedulerInfo"]
    names = sorted(_queues(info))
    # Other schedulers make a queue when an application comes to it.
    if info.get("type") != "capacityScheduler" or queue.rpartition(".")[2] in names:
        return fine("engine", "yarn", f"{address}, queue {queue}", queue=queue, queues=names)
    trouble = Trouble(
        kind="no such queue",
        happened=f"YARN has no queue {queue}; it has {', '.join(names)}.",
        safe=NOTHING_STARTED,
        run="kdi doctor    (first set spark.yarn.queue in spark-defaults.conf to one of them)",
    )
    # Whether a queue that a mapping names would be made, only the ResourceManager's configuration says.
    verdict = warning if _makes_queues(info) else wrong
    return verdict("engine", "yarn", trouble, queue=queue, queues=names)


def _makes_queues(info: Any) -> bool:
    """Whether a queue of the CapacityScheduler makes queues below it when an application comes.

    Source: Hadoop, ``CapacitySchedulerQueueInfo``.
    """
    if isinstance(info, list):
        return any(map(_makes_queues, info))
    if not isinstance(info, dict):
        return False
    legacy = info.get("autoCreateChildQueueEnabled") in (True, "true")
    return legacy or info.get("autoCreationEligibility", "off") != "off" or any(map(_makes_queues, info.values()))


def _queues(info: Any) -> Iterator[str]:
    """The names of queues that have none below them, anywhere in a scheduler's answer."""
    if isinstance(info, dict):
        below = [name for value in info.values() for name in _queues(value)]
        yield from below or ([str(info["queueName"])] if "queueName" in info else [])
    elif isinstance(info, list):
        for each in info:
            yield from _queues(each)


def _hadoop_properties(folder: Path) -> dict[str, str]:
    """What the files of ``HADOOP_CONF_DIR`` set; with the values of other properties in the place of their names."""
    found: dict[str, str] = {}
    for file in (folder / name for name in ("core-site.xml", "yarn-site.xml")):
        if file.exists():
            for each in ElementTree.fromstring(file.read_text()).iter("property"):  # noqa: S314 - the machine's own
                found[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
    return {name: re.sub(r"\$\{([^}]+)\}", lambda m: found.get(m[1], m[0]), value) for name, value in found.items()}


def _resource_managers(properties: Mapping[str, str]) -> list[str]:
    """Where the ResourceManagers serve their web pages.

    Source: Hadoop 3.5, ``yarn-default.xml``.
    """
    secure = properties.get("yarn.http.policy") == "HTTPS_ONLY"
    scheme, key, port = ("https", "webapp.https.address", 8090) if secure else ("http", "webapp.address", 8088)
    ids = properties.get("yarn.resourcemanager.ha.rm-ids", "")
    several = properties.get("yarn.resourcemanager.ha.enabled") == "true"
    found = []
    for suffix in [f".{name.strip()}" for name in ids.split(",")] if several and ids else [""]:
        host = properties.get(f"yarn.resourcemanager.hostname{suffix}", "0.0.0.0")  # noqa: S104 - Hadoop's default
        address = properties.get(f"yarn.resourcemanager.{key}{suffix}") or f"{host}:{port}"
        found.append(f"{scheme}://{address}")
    return found


def _json_of(url: str, *, seconds: float) -> dict[str, Any]:
    # Without the environment's proxies, as Spark asks.
    with build_opener(ProxyHandler({})).open(url, timeout=seconds) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _unanswered(kind: str, happened: str) -> Unanswered:
    return Unanswered(
        kind=kind,
        happened=happened,
        safe=NOTHING_STARTED,
        run="kdi doctor    (once the cluster runs and this machine reaches it; KDI_SPARK_MASTER names it)",
    )


def _no_configuration(happened: str) -> Trouble:
    return Trouble(
        kind="no configuration of Hadoop",
        happened=f"Spark finds YARN by the files of HADOOP_CONF_DIR: {happened}.",
        safe=NOTHING_STARTED,
        run="kdi doctor    (with HADOOP_CONF_DIR as the folder with core-site.xml and yarn-site.xml)",
    )


def _not_for_us(what: str, refused: Exception) -> Trouble | None:
    """That a server answers which wants a login, or whose certificate Python does not trust; ``None``: it is silent."""
    if isinstance(refused, HTTPError):
        said = f"{what} answers, and not to us: {refused.code} {refused.reason}."
    elif isinstance(refused, URLError) and isinstance(refused.reason, ssl.SSLError):
        said = f"{what} answers with a certificate that this program does not trust: {refused.reason}."
    else:
        return None
    return Trouble(
        kind="not examined",
        happened=said,
        safe="drains log in and trust certificates as Spark is configured; what they would get was not examined.",
        run="kdi drain    (its error says what the cluster refuses)",
    )
