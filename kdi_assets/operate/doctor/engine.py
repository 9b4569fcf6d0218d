"""The cluster that runs Spark's tasks: a standalone master, YARN, or Kubernetes; asked without a JVM."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener
from xml.etree import ElementTree

from kdi_assets.operate.doctor.disk import spark_default
from kdi_assets.operate.doctor.finding import Finding, Trouble, Unanswered, fine, warning, wrong
from kdi_assets.settings import Settings

ANSWER_SECONDS = 4.0
"""Of each server that is asked; an examination may take ten."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NOTHING_STARTED = "nothing was started; tables and positions stay as they are."


def master_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Spark's master: that of the settings, or of Spark's own configuration; may be empty."""
    return settings.spark_master or spark_default("spark.master", environment)


def engine(master: str, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether the cluster answers, and would give this process what it asks for; nothing if ``master`` is local."""
    if master.startswith("spark://"):
        yield standalone(master)
    elif master == "yarn":
        yield yarn(environment)
    elif master.startswith("k8s://"):
        yield kubernetes(master, spark_default("spark.kubernetes.namespace", environment) or "default")


def standalone(master: str) -> Finding:
    """Whether one of the masters accepts connections."""
    silent: list[str] = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
        except (OSError, ValueError) as refused:
            silent.append(f"{address}: {refused}")
        else:
            return fine("engine", master, f"{address} accepts connections", address=address)
    return wrong("engine", master, _unanswered("master silent", f"no Spark master answers: {'; '.join(silent)}."))


def yarn(environment: Mapping[str, str] = os.environ) -> Finding:
    """Whether the ResourceManager answers, and has the queue."""
    folder = environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR") or ""
    try:
        properties = _hadoop_properties(Path(folder)) if folder else {}
    except (OSError, ElementTree.ParseError) as unread:
        return wrong("engine", "yarn", _no_configuration(f"{folder} cannot be read: {unread}"))
    if not properties:
        said = f"{folder} has neither core-site.xml nor yarn-site.xml" if folder else "HADOOP_CONF_DIR is not set"
        return wrong("engine", "yarn", _no_configuration(said))
    silent: list[str] = []
    for address in _resource_managers(properties):
        try:
            scheduler = _json_of(f"{address}/ws/v1/cluster/scheduler")
        except HTTPError as refused:
            return warning("engine", "yarn", _not_for_us(f"the ResourceManager {address}", refused))
        except (OSError, ValueError) as refused:
            silent.append(f"{address}: {refused}")
        else:
            return _queue(spark_default("spark.yarn.queue", environment) or "default", scheduler, address)
    said = f"no ResourceManager of {folder} answers: {'; '.join(silent)}."
    return wrong("engine", "yarn", _unanswered("YARN silent", said))


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
    return wrong("engine", "yarn", trouble, queue=queue, queues=names)


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


def kubernetes(master: str, namespace: str, *, account: Path = SERVICE_ACCOUNT) -> Finding:
    """Whether the API answers, and lets this process's service account make pods in the namespace of executors."""
    address = master.removeprefix("k8s://")
    address = address if "://" in address else f"https://{address}"
    token, authority = account / "token", account / "ca.crt"
    headers = {"Content-Type": "application/json"}
    if token.is_file():
        headers["Authorization"] = f"Bearer {token.read_text().strip()}"
    asked = {"namespace": namespace, "verb": "create", "resource": "pods"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body = json.dumps({**review, "spec": {"resourceAttributes": asked}}).encode()
    url = f"{address}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    try:
        trusted = ssl.create_default_context(cafile=str(authority)) if authority.is_file() else None
        answer = _json_of(url, body, headers, trusted)
    except HTTPError as refused:
        return warning("engine", master, _not_for_us(f"the Kubernetes API {address}", refused))
    except (OSError, ValueError) as refused:
        return wrong("engine", master, _unanswered("Kubernetes silent", f"{address} does not answer: {refused}."))
    if answer["status"].get("allowed"):
        return fine("engine", master, f"may create pods in {namespace}", namespace=namespace)
    trouble = Trouble(
        kind="may not create pods",
        happened=f"Kubernetes does not let this service account create pods in {namespace}, so there are no executors.",
        safe=NOTHING_STARTED,
        run=f"kubectl auth can-i create pods --namespace {namespace}    (as the driver's service account; the chart's "
        "Role gives it the right)",
    )
    return wrong("engine", master, trouble, namespace=namespace)


def _json_of(
    url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, trusted: ssl.SSLContext | None = None
) -> dict[str, Any]:
    # Without the environment's proxies, as Spark asks.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trusted))
    with opener.open(Request(url, body, dict(headers or {})), timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - http(s)
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


def _not_for_us(what: str, refused: HTTPError) -> Trouble:
    return Trouble(
        kind="not examined",
        happened=f"{what} answers, and not to us: {refused.code} {refused.reason}.",
        safe="drains log in by themselves; what they would get was not examined.",
        run="kdi drain    (its error says what the cluster refuses)",
    )
