"""The API of Kubernetes over HTTPS, as one account may call it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
ANSWER_SECONDS = 30.0
RESOURCES = {
    "ConfigMap": "api/v1/{namespace}/configmaps",
    "Deployment": "apis/apps/v1/{namespace}/deployments",
    "NetworkPolicy": "apis/networking.k8s.io/v1/{namespace}/networkpolicies",
    "Pod": "api/v1/{namespace}/pods",
    "ResourceQuota": "api/v1/{namespace}/resourcequotas",
    "Role": "apis/rbac.authorization.k8s.io/v1/{namespace}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/{namespace}/rolebindings",
    "Secret": "api/v1/{namespace}/secrets",
    "Service": "api/v1/{namespace}/services",
    "ServiceAccount": "api/v1/{namespace}/serviceaccounts",
    "StatefulSet": "apis/apps/v1/{namespace}/statefulsets",
}
"""Where objects of a kind are."""


@dataclass
class Refused(Exception):
    """The API server refuses a call: the code of HTTP, and its words."""

    code: int
    said: str

    def __str__(self) -> str:
        return f"{self.code}: {self.said}"


@dataclass
class Api:
    """The API server, for the account of a token.

    Attributes:
        url: As ``https://127.0.0.1:6443``.
        authority: The file with the certificate that signed the server's.
    """

    url: str
    authority: Path
    token: str
    _pool: urllib3.PoolManager = field(init=False)

    def __post_init__(self) -> None:
        self._pool = urllib3.PoolManager(ca_certs=str(self.authority), retries=False, timeout=ANSWER_SECONDS)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer to one call.

        Raises:
            Refused: Its code is not one of success.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content}
        url = f"{self.url}/{path}" + (f"?{urlencode(query)}" if query else "")
        answer = self._pool.request(method, url, body=json.dumps(body) if body else None, headers=headers)
        text = answer.data.decode()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return json.loads(text) if text.startswith("{") else {"text": text}

    def listed(self, kind: str, namespace: str, **query: str) -> list[dict[str, Any]]:
        """All objects of a kind; the query may name labels or fields."""
        items: list[dict[str, Any]] = self.call("GET", place(kind, namespace), query=query)["items"]
        return items

    def apply(self, manifest: Mapping[str, Any], namespace: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Apply a manifest on the server, as ``kubectl apply --server-side --validate=strict`` does."""
        path = f"{place(manifest['kind'], namespace)}/{manifest['metadata']['name']}"
        query = {"fieldManager": "tests", "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self.call("PATCH", path, manifest, content=APPLY, query=query)

    def may(self, verb: str, resource: str, namespace: str) -> bool:
        """Whether the account may do this, as ``kubectl auth can-i`` says it."""
        kind, _, part = resource.partition("/")
        groups = {"rolebindings": "rbac.authorization.k8s.io", "statefulsets": "apps"}
        attributes = {"namespace": namespace, "verb": verb, "resource": kind, "group": groups.get(kind, "")}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        spec = {"resourceAttributes": attributes | ({"subresource": part} if part else {})}
        path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.call("POST", path, {**review, "spec": spec})["status"]["allowed"])

    def delete(self, kind: str, name: str, namespace: str) -> None:
        """Delete an object; nothing if it is gone."""
        try:
            self.call("DELETE", f"{place(kind, namespace)}/{name}")
        except Refused as refused:
            if refused.code != 404:
                raise

    def evict(self, pod: str, namespace: str, *, grace_seconds: int) -> None:
        """Evict a pod, as ``kubectl drain`` does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        eviction |= {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
        self.call("POST", f"{place('Pod', namespace)}/{pod}/eviction", eviction)

    def token_of(self, account: str, namespace: str, *, pod: str = "") -> str:
        """A token of a service account, as a pod of it gets it; with the pod's name, it ends with the pod."""
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}} if pod else {}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body = {**asked, "spec": {"expirationSeconds": 3600, **bound}}
        answer = self.call("POST", f"{place('ServiceAccount', namespace)}/{account}/token", body)
        token: str = answer["status"]["token"]
        return token


def place(kind: str, namespace: str) -> str:
    """The path of all objects of a kind in a namespace."""
    return RESOURCES[kind].format(namespace=f"namespaces/{quote(namespace)}")
