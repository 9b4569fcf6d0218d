"""Asks Kubernetes for an executor's pod as Spark would, without making it: a dry run."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import yaml

from kdi_assets.operate.doctor.disk import spark_default
from kdi_assets.operate.doctor.finding import NOTHING_STARTED, Finding, Trouble, Unanswered, fine, warning, wrong

ANSWER_SECONDS = 4.0
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MEBIBYTES = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}
_OVERHEAD_FACTOR, _LEAST_OVERHEAD = "0.1", 384
"""Of the memory, in MiB, that Spark asks for beside an executor's heap."""


def kubernetes(master: str, environment: Mapping[str, str] = os.environ, *, account: Path = SERVICE_ACCOUNT) -> Finding:
    """Whether the API would take an executor's pod from this process, with the settings of ``spark-defaults.conf``."""
    address = master.removeprefix("k8s://")
    asking = _Asking(master, address if "://" in address else f"https://{address}", environment, account)
    try:
        pod = asking.executor()
    except (OSError, ValueError, yaml.YAMLError) as unread:
        return asking.wrong("no pod of an executor", f"the settings of executors cannot be read: {unread}.")
    try:
        token, trusted = asking.login()
    except (OSError, ValueError) as unread:
        happened = f"the service account of this process cannot be read: {unread}."
        return asking.wrong("no service account", happened, f"ls -l {account}    (Spark reads token and ca.crt there)")
    if re.search(r"\s", token):
        return asking.token_with_space()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{asking.address}/api/v1/namespaces/{asking.namespace}/pods?dryRun=All"
    # Without the environment's proxies, as Spark asks.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trusted))
    request = Request(url, json.dumps(pod).encode(), {"Content-Type": "application/json", **headers})  # noqa: S310
    try:
        opener.open(request, timeout=ANSWER_SECONDS).close()
    except HTTPError as refused:
        return asking.refused(refused.code, _said(refused), has_token=bool(token))
    except OSError as silent:
        return asking.silent(silent, trusts_an_authority=trusted is not None)
    return fine("engine", master, f"would start executors in {asking.namespace}", namespace=asking.namespace)


@dataclass(frozen=True)
class _Asking:
    """One question to the API; ``environment`` names Spark's settings."""

    master: str
    address: str
    environment: Mapping[str, str]
    account: Path

    def setting(self, name: str, default: str = "") -> str:
        return spark_default(f"spark.{name}", self.environment) or default

    @property
    def namespace(self) -> str:
        return self.setting("kubernetes.namespace", "default")

    @property
    def token(self) -> Path:
        return Path(self.setting("kubernetes.authenticate.oauthTokenFile", str(self.account / "token")))

    @property
    def authority(self) -> Path:
        return Path(self.setting("kubernetes.authenticate.caCertFile", str(self.account / "ca.crt")))

    def login(self) -> tuple[str, ssl.SSLContext | None]:
        """The token of the account that Spark would use, and the authority of its cluster; without a file, none."""
        token = self.token.read_text() if self.token.is_file() else ""
        return token, ssl.create_default_context(cafile=str(self.authority)) if self.authority.is_file() else None

    def executor(self) -> dict[str, Any]:
        """A pod like those that Spark makes.

        Source: Spark 4.2, ``BasicExecutorFeatureStep``.
        """
        template = self.setting("kubernetes.executor.podTemplateFile")
        pod: dict[str, Any] = (yaml.safe_load(Path(template).read_text()) if template else {}) or {}
        image = self.setting("kubernetes.container.image")
        spec = {**(pod.get("spec") or {}), "restartPolicy": "Never"}
        first, *others = spec.get("containers") or [{"name": "executor"}]
        image = self.setting("kubernetes.executor.container.image", image)
        spec["containers"] = [{**first, "image": image, "resources": self._resources()}, *others]
        # Spark replaces these two; a dry run with a name would be refused if its pod exists.
        kept = {key: of for key, of in (pod.get("metadata") or {}).items() if key not in ("name", "namespace")}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**kept, "generateName": "kdi-doctor-"},
            "spec": spec,
        }

    def _resources(self) -> dict[str, dict[str, str]]:
        heap = _mebibytes(self.setting("executor.memory", "1g"))
        factor = float(self.setting("executor.memoryOverheadFactor", _OVERHEAD_FACTOR))
        overhead = max(heap * factor, _LEAST_OVERHEAD)
        memory = f"{heap + _mebibytes(self.setting('executor.memoryOverhead', f'{overhead:.0f}')):.0f}Mi"
        cores = self.setting("kubernetes.executor.request.cores", self.setting("executor.cores", "1"))
        most = self.setting("kubernetes.executor.limit.cores")
        limits = {"memory": memory, **({"cpu": most} if most else {})}
        return {"requests": {"cpu": cores, "memory": memory}, "limits": limits}

    def refused(self, code: int, said: str, *, has_token: bool) -> Finding:
        """What a code of HTTP means here."""
        happened = f"Kubernetes refuses executors in the namespace {self.namespace} ({code}): {said}."
        if not has_token or "does not support dry run" in said:
            return self._unexamined(f"the Kubernetes API {self.address} answers, and not to us: {code} {said}.")
        if code >= 500 or code == 429:
            return self._unanswered(f"{self.address} answers with {code}: {said}.")
        if "exceeded quota" in said:
            trouble = Trouble(
                kind="no room in the quota",
                happened=happened,
                safe="a driver that has its executors goes on; one without waits 5 minutes for the first.",
                run=f"kubectl --namespace {self.namespace} describe resourcequota",
            )
            return warning("engine", self.master, trouble, namespace=self.namespace)
        if code == 401:
            run = f"ls -l {self.token}    (a token ends with its pod, and in time)"
            return self.wrong("token refused", happened, run)
        if "cannot create resource" in said:
            run = (
                f"kubectl auth can-i create pods --namespace {self.namespace}    (as the driver's service account; the "
                "chart's Role gives it the right in its namespace, which spark.kubernetes.namespace names)"
            )
            return self.wrong("may not create pods", happened, run)
        return self.wrong("executors refused", happened)

    def silent(self, failed: OSError, *, trusts_an_authority: bool) -> Finding:
        reason = failed.reason if isinstance(failed, URLError) else failed
        if not isinstance(reason, ssl.SSLError):
            return self._unanswered(f"{self.address} does not answer: {reason}.")
        happened = f"{self.address} answers with a certificate that this program does not trust: {reason}."
        if not trusts_an_authority:
            return self._unexamined(happened)
        run = f"ls -l {self.authority}    (it must have the certificate of the cluster's authority)"
        return self.wrong("certificate not trusted", happened, run)

    def token_with_space(self) -> Finding:
        """Not sent, as the error of Python's client would show the token."""
        happened = f"the token in {self.token} has a line end or a space; Spark reads it as it is, and cannot log in."
        run = f"kdi doctor    (first write nothing but the token into {self.token}; printf ends no line, echo does)"
        return self.wrong("the token has a line end", happened, run)

    def wrong(self, kind: str, happened: str, run: str = "") -> Finding:
        settings = Path(self.environment.get("SPARK_CONF_DIR", ""), "spark-defaults.conf")
        run = run or f"kdi doctor    (first correct {settings}, its pod template, or what is named here)"
        trouble = Trouble(kind=kind, happened=happened, safe=NOTHING_STARTED, run=run)
        return wrong("engine", self.master, trouble, namespace=self.namespace)

    def _unanswered(self, happened: str) -> Finding:
        run = "kdi doctor    (once the cluster runs and this machine reaches it; KDI_SPARK_MASTER names it)"
        trouble = Unanswered(kind="Kubernetes silent", happened=happened, safe=NOTHING_STARTED, run=run)
        return wrong("engine", self.master, trouble)

    def _unexamined(self, happened: str) -> Finding:
        trouble = Trouble(
            kind="not examined",
            happened=happened,
            safe="drains log in and trust certificates as Spark is configured; what they would get was not examined.",
            run="kdi drain    (its error says what the cluster refuses)",
        )
        return warning("engine", self.master, trouble)


def _said(refused: HTTPError) -> str:
    """The words of the API's answer; those of HTTP, if somebody else answers."""
    try:
        return str(json.loads(refused.read().decode(errors="replace"))["message"]).rstrip(".")
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return str(refused.reason)


def _mebibytes(size: str) -> float:
    """A size of Spark's settings of memory: without a unit, of MiB."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", size.lower())
    if not found:
        raise ValueError(f"{size} is no size of memory")
    return int(found[1]) * _MEBIBYTES[found[2] or "m"]
