"""Kubernetes' own servers on the loopback: etcd, API server, controllers and scheduler, compiled once."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from tests.kubernetes.api import Api, Refused
from tests.waiting import wait_until

SOURCES = Path(__file__).parent / "servers"
VERSION = "v1.36.3"
"""Of Kubernetes, as in ``servers/go.mod``; without it, clients cannot read the servers' version."""
CONTROLLERS = (
    "deployment-controller",
    "garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)
AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


def compiled_servers(home: Path) -> Path:
    """The program; compiled at the first call for these sources, which takes minutes and the network.

    Args:
        home: Keeps it, in its folder ``kubernetes``.
    """
    files = sorted(SOURCES.iterdir())
    sources = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
    program = home / "kubernetes" / f"servers-{sources}"
    if program.exists():
        return program
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    assert go, "Kubernetes' servers are compiled by Go 1.26 or newer, which is not installed"
    program.parent.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(".new")
    version = f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"
    subprocess.run([go, "build", "-C", SOURCES, "-trimpath", "-ldflags", version, "-o", unfinished, "."], check=True)
    return unfinished.rename(program)


class ControlPlane:
    """The running servers; nothing of them listens elsewhere than on the loopback.

    Attributes:
        url: The API server's.
        authority: The file with its certificate.
        admin: The API with all rights.

    Args:
        folder: Gets keys, data and logs.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self._program = folder, compiled_servers(home)
        port = free_port()
        self.url, self.authority = f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt"
        self._token = secrets.token_urlsafe()
        self._running: list[Child] = []
        try:
            self._start_api(port, self._start_etcd())
            self.admin = Api(self.url, self.authority, self._token)
            self._await_api()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers."""
        return [child.pid for child in self._running]

    def account(self, token: str) -> Api:
        """The API as the account of a token may call it."""
        return Api(self.url, self.authority, token)

    def calls(self, account: str) -> Iterator[tuple[str, str, int]]:
        """The calls of Spark with a service account until now: verb, resource with its group, and HTTP's code."""
        for line in (self.folder / "audit.log").read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["user"]["username"].endswith(f":{account}") and "fabric8" in event["userAgent"]:
                asked = event.get("objectRef", {})
                resource = "/".join(filter(None, (asked.get("apiGroup"), asked.get("resource"))))
                yield event["verb"], resource, event["responseStatus"]["code"]

    def stop(self) -> None:
        """End all servers, the last that was started first."""
        for child in reversed(self._running):
            child.stop(within_seconds=5)

    def _start(self, server: str, *options: str) -> None:
        command: list[str | Path] = [self._program, server, *options]
        self._running.append(Child(command, log=self.folder / f"{server}.log"))

    def _start_etcd(self) -> str:
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        return clients

    def _start_api(self, port: int, etcd: str) -> None:
        tokens, policy = self.folder / "tokens.csv", self.folder / "audit.json"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        policy.write_text(json.dumps(AUDITED))
        key, public = _signing_keys(self.folder)
        self._start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.authority.parent}",
            f"--token-auth-file={tokens}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=RBAC",
            # Nobody here removes the taint of a new node.
            "--disable-admission-plugins=TaintNodesByCondition",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.folder / 'audit.log'}",
        )

    def _await_api(self) -> None:
        log = self.folder / "kube-apiserver.log"

        def ready() -> bool:
            assert self._running[-1].exit_code() is None, log.read_text()[-5000:]
            try:
                return self.authority.exists() and "ok" in self.admin.call("GET", "readyz")["text"]
            except (Refused, urllib3.exceptions.HTTPError):
                return False

        wait_until(ready, seconds=120)

    def _start_controllers(self) -> None:
        access = self.folder / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        access.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "here", "cluster": cluster}],
                    "users": [{"name": "admin", "user": {"token": self._token}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
                    "current-context": "here",
                }
            )
        )
        common = (f"--kubeconfig={access}", "--leader-elect=false", "--secure-port=0")
        self._start(
            "kube-controller-manager",
            *common,
            f"--controllers={','.join(CONTROLLERS)}",
            f"--root-ca-file={self.authority}",
        )
        self._start("kube-scheduler", *common)


def _signing_keys(folder: Path) -> tuple[Path, Path]:
    """The key that signs tokens of service accounts, and its public half."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "accounts.key", folder / "accounts.pub"
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
