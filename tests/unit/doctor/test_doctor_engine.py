"""`kdi doctor` on a cluster's master, YARN and Kubernetes, played by small servers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kdi_assets.errors import Transient
from kdi_assets.operate.doctor import engine as module
from kdi_assets.operate.doctor.engine import driver_host, engine, master_of
from kdi_assets.operate.doctor.finding import Finding, Verdict
from kdi_assets.operate.doctor.kubernetes import kubernetes
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import free_port
from tests.kafka.certificates import make_certificates

CAPACITY = {
    "type": "capacityScheduler",
    "queueName": "root",
    "queues": {
        "queue": [{"queueName": "default"}, {"queueName": "teams", "queues": {"queue": [{"queueName": "web"}]}}]
    },
}
Serve = Callable[..., str]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers every request with this; ``asked`` gets requests. Returns host:port."""
    servers: list[ThreadingHTTPServer] = []

    def start(
        answer: object,
        status: int = 200,
        asked: list[tuple[str, str, Any]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if asked is not None:
                    asked.append((self.path, self.headers.get("Authorization", ""), json.loads(body or b"null")))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        if tls:
            servers[-1].socket = tls.wrap_socket(servers[-1].socket, server_side=True)
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def of(master: str, **environment: str) -> Finding:
    (finding,) = engine(master, environment)
    return finding


@pytest.mark.parametrize("master", ["local[2]", "local", ""])
def test_a_spark_of_this_machine_has_no_engine_to_examine(master: str) -> None:
    assert not list(engine(master, {}))


def test_the_master_is_that_of_the_settings_or_of_sparks_own_file(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master  yarn\n")
    conf = {"SPARK_CONF_DIR": str(tmp_path)}

    assert master_of(Settings(tmp_path, ""), conf) == "yarn"
    assert master_of(Settings(tmp_path, "", spark_master="spark://a:1"), conf) == "spark://a:1"


def test_one_of_several_masters_must_accept_connections() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as standby:
        here = f"127.0.0.1:{standby.getsockname()[1]}"

        assert of(f"spark://127.0.0.1:{free_port()},{here}").found == f"{here} accepts connections"
    silent = of(f"spark://{here}")

    assert silent.verdict is Verdict.WRONG and isinstance(silent.trouble, Transient)
    assert f"no Spark master answers: {here}: " in str(silent.trouble)


def test_a_folder_of_sparks_settings_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    environment = {"SPARK_CONF_DIR": str(tmp_path / "none")}

    missing, _ = engine(f"spark://127.0.0.1:{free_port()}", environment)

    assert missing.verdict is Verdict.WARNING
    assert f"SPARK_CONF_DIR names {tmp_path}/none, which is not a folder here." in str(missing.trouble)
    assert not list(engine("local[*]", environment))


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("", []),
        ("spark.driver.host 127.0.0.1", ["executors are to reach the driver at 127.0.0.1"]),
        ("spark.driver.host kdi.invalid", ["driver's name unknown"]),
    ],
)
def test_a_name_of_the_driver_that_is_not_known_here_is_a_warning(
    tmp_path: Path, setting: str, found: list[str]
) -> None:
    """Purpose: executors that do not know it end at once, and the drain only says after minutes that it has none."""
    (tmp_path / "spark-defaults.conf").write_text(f"{setting}\n")

    findings = [*driver_host({"SPARK_CONF_DIR": str(tmp_path)})]

    assert [finding.found for finding in findings] == found
    assert [finding.verdict for finding in findings if finding.trouble] == [Verdict.WARNING] * ("invalid" in setting)


def configured(folder: Path, **properties: str) -> dict[str, str]:
    """The variables of a machine whose ``yarn-site.xml`` has these properties, with dots for underscores."""
    lines = [
        f"<property><name>{n.replace('_', '.')}</name><value>{v}</value></property>" for n, v in properties.items()
    ]
    (folder / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder), "SPARK_CONF_DIR": str(folder)}


@pytest.mark.parametrize(("queue", "verdict"), [("", "ok"), ("web", "ok"), ("root.teams.web", "ok"), ("wep", "wrong")])
def test_yarn_must_answer_and_have_the_queue(tmp_path: Path, serve: Serve, queue: str, verdict: str) -> None:
    host, _, port = serve({"scheduler": {"schedulerInfo": CAPACITY}}).partition(":")
    address = f"${{yarn.resourcemanager.hostname}}:{port}"
    environment = configured(tmp_path, yarn_resourcemanager_hostname=host, yarn_resourcemanager_webapp_address=address)
    (tmp_path / "spark-defaults.conf").write_text(f"spark.yarn.queue {queue}\n" if queue else "")

    found = of("yarn", **environment)

    assert found.verdict == verdict
    if found.trouble:
        assert "YARN has no queue wep; it has default, web." in str(found.trouble)
    else:
        assert found.found == f"http://{host}:{port}, queue {queue or 'default'}"


def test_a_queue_is_not_missed_where_the_scheduler_makes_queues(tmp_path: Path, serve: Serve) -> None:
    fair = {"type": "fairScheduler", "rootQueue": {"queueName": "root", "childQueues": {"queue": []}}}
    address = serve({"scheduler": {"schedulerInfo": fair}})

    found = of("yarn", **configured(tmp_path, yarn_resourcemanager_webapp_address=address))

    assert found.verdict is Verdict.OK


@pytest.mark.parametrize(
    "makes",
    [{"autoCreateChildQueueEnabled": True}, {"autoCreationEligibility": "flexible"}],
    ids=["legacy", "flexible"],
)
def test_a_queue_that_the_capacity_scheduler_may_make_is_a_warning(
    tmp_path: Path, serve: Serve, makes: dict[str, object]
) -> None:
    usual = {"autoCreateChildQueueEnabled": False, "autoCreationEligibility": "off"}
    for extra, verdict in ((usual, Verdict.WRONG), (makes, Verdict.WARNING)):
        teams = {"queueName": "teams", **extra}
        info = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [{"queueName": "x"}, teams]}}
        address = serve({"scheduler": {"schedulerInfo": info}})

        found = of("yarn", **configured(tmp_path, yarn_resourcemanager_webapp_address=address))

        assert found.verdict is verdict
        assert "YARN has no queue default; it has teams, x." in str(found.trouble)


def test_many_silent_servers_are_named_before_the_examination_ends(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(module, "ALL_SECONDS", 0.8)
    ids = [f"rm{number}" for number in range(8)]
    properties = {
        "yarn_resourcemanager_ha_enabled": "true",
        "yarn_resourcemanager_ha_rm-ids": ",".join(ids),
        **{f"yarn_resourcemanager_webapp_address_{name}": silent for name in ids},
    }

    began = monotonic()
    found = of("yarn", **configured(tmp_path, **properties))

    assert monotonic() - began < 8 * 0.4, "that is what they take if each has its own time limit"
    assert str(found.trouble).count(f"http://{silent}: ") == 8


def test_the_resource_manager_that_answers_is_asked_and_one_that_wants_a_login_is_a_warning(
    tmp_path: Path, serve: Serve
) -> None:
    for status, verdict in ((200, Verdict.OK), (401, Verdict.WARNING)):
        properties = {
            "yarn_resourcemanager_ha_enabled": "true",
            "yarn_resourcemanager_ha_rm-ids": "rm1, rm2",
            "yarn_resourcemanager_webapp_address_rm1": f"127.0.0.1:{free_port()}",
            "yarn_resourcemanager_webapp_address_rm2": serve({"scheduler": {"schedulerInfo": CAPACITY}}, status),
        }

        assert of("yarn", **configured(tmp_path, **properties)).verdict is verdict


@pytest.mark.parametrize("lacks", ["variable", "folder", "files", "sense", "server"])
def test_a_yarn_that_cannot_be_found_is_said_with_its_reason(tmp_path: Path, lacks: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = configured(tmp_path, yarn_resourcemanager_webapp_address=address)
    if lacks == "variable":
        del environment["HADOOP_CONF_DIR"]
    elif lacks == "folder":
        environment["HADOOP_CONF_DIR"] = str(tmp_path / "gone")
    elif lacks == "files":
        (tmp_path / "yarn-site.xml").unlink()
    elif lacks == "sense":
        (tmp_path / "yarn-site.xml").write_text("<configuration>")

    found = of("yarn", **environment)

    assert found.verdict is Verdict.WRONG
    assert isinstance(found.trouble, Transient) == (lacks == "server")
    said = {
        "variable": "HADOOP_CONF_DIR is not set",
        "folder": "has neither core-site.xml nor yarn-site.xml",
        "files": "has neither core-site.xml nor yarn-site.xml",
        "sense": "cannot be read: no element found",
        "server": f"no ResourceManager of {tmp_path} answers: http://{address}: ",
    }
    assert said[lacks] in str(found.trouble)


def of_pods(folder: Path, **settings: str) -> dict[str, str]:
    """The variables of a driver with these settings of Spark, with dots for underscores; they name a pod template."""
    template = folder / "executor.yaml"
    template.write_text("spec: {serviceAccountName: kdi, containers: [{name: executor, command: [/opt/kdi/run]}]}\n")
    settings = {
        "kubernetes_namespace": "lake",
        "kubernetes_container_image": "registry.example/kdi:1",
        "kubernetes_executor_podTemplateFile": str(template),
        **settings,
    }
    lines = [f"spark.{name.replace('_', '.')} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(folder)}


def test_kubernetes_is_asked_for_a_pod_of_the_settings_which_is_not_made(tmp_path: Path, serve: Serve) -> None:
    asked: list[tuple[str, str, Any]] = []
    (tmp_path / "token").write_text("of-the-account")
    master = f"k8s://http://{serve({}, 201, asked)}"

    sizes = {"executor_memory": "2g", "executor_cores": "3"}
    found = kubernetes(master, of_pods(tmp_path, **sizes), account=tmp_path)
    kubernetes(master, of_pods(tmp_path, executor_memoryOverhead="1g"), account=tmp_path)

    (path, token, pod), (_, _, other) = asked
    assert found.verdict is Verdict.OK
    assert path == "/api/v1/namespaces/lake/pods?dryRun=All"
    assert token == "Bearer of-the-account"
    assert pod["spec"]["serviceAccountName"] == "kdi"
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["command"]) == ("registry.example/kdi:1", ["/opt/kdi/run"])
    memory = "2432Mi"  # the heap, and at least 384 MiB more
    assert container["resources"] == {"requests": {"cpu": "3", "memory": memory}, "limits": {"memory": memory}}
    assert other["spec"]["containers"][0]["resources"]["limits"] == {"memory": "2048Mi"}


def test_kubernetes_is_asked_for_the_limits_and_in_place_of_the_names_of_a_template(
    tmp_path: Path, serve: Serve
) -> None:
    """Purpose: Spark gives its pods names of its own, in its namespace; the template's would be refused here only."""
    asked: list[tuple[str, str, Any]] = []
    (tmp_path / "token").write_text("of-the-account")
    master = f"k8s://http://{serve({}, 201, asked)}"
    settings = {
        "executor_memory": "10g",
        "executor_memoryOverheadFactor": "0.4",
        "kubernetes_executor_limit_cores": "2",
    }
    environment = of_pods(tmp_path, **settings)
    metadata = "metadata: {name: mine, namespace: other, labels: {team: web}}"
    for template in (f"{metadata}\nspec: {{restartPolicy: Always}}\n", "metadata:\nspec:\n", ""):
        (tmp_path / "executor.yaml").write_text(template)
        assert kubernetes(master, environment, account=tmp_path).verdict is Verdict.OK

    (_, _, pod), *empty = asked
    assert pod["metadata"] == {"generateName": "kdi-doctor-", "labels": {"team": "web"}}
    assert pod["spec"]["restartPolicy"] == "Never"
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "14336Mi"}
    assert [other["spec"] for _, _, other in empty] == [pod["spec"]] * 2


def test_words_of_kubernetes_that_do_not_come_are_those_of_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.operate.doctor.kubernetes.ANSWER_SECONDS", 0.5)
    (tmp_path / "token").write_text("of-the-account")
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def begin_to_answer() -> None:
            connection, _ = listening.accept()
            with closing(connection):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 90\r\n\r\n{")
                over.wait(10)

        over = threading.Event()
        threading.Thread(target=begin_to_answer).start()
        found = kubernetes(f"k8s://http://127.0.0.1:{listening.getsockname()[1]}", of_pods(tmp_path), account=tmp_path)
        over.set()

    assert found.found == "executors refused" and "(422): Unprocessable" in str(found.trouble)


FORBIDDEN = (
    'pods is forbidden: User "system:serviceaccount:lake:kdi" cannot create resource "pods" in the namespace "lake"'
)
QUOTA = 'pods "kdi-doctor-x" is forbidden: exceeded quota: full, requested: pods=1, used: pods=3, limited: pods=3'
ACCOUNT = 'pods "kdi-doctor-x" is forbidden: error looking up service account lake/kdi: serviceaccount "kdi" not found'
IMAGE = 'Pod "kdi-doctor-x" is invalid: spec.containers[0].image: Required value'


@pytest.mark.parametrize(
    ("code", "said", "found", "run"),
    [
        (403, FORBIDDEN, "may not create pods", "kubectl auth can-i create pods --namespace lake"),
        (403, QUOTA, "no room in the quota", "kubectl --namespace lake describe resourcequota"),
        (403, ACCOUNT, "executors refused", "spark-defaults.conf"),
        (422, IMAGE, "executors refused", "spark-defaults.conf"),
        (401, "Unauthorized", "token refused", "ls -l"),
        (503, "the server is starting", "Kubernetes silent", "kdi doctor"),
        (400, "admission webhook x does not support dry run", "not examined", "kdi drain"),
    ],
)
def test_what_kubernetes_refuses_is_said_in_its_words_with_what_to_do(
    tmp_path: Path, serve: Serve, code: int, said: str, found: str, run: str
) -> None:
    """A full quota is only a warning: it may be full of this driver's executors."""
    (tmp_path / "token").write_text("of-the-account")
    master = f"k8s://http://{serve({'kind': 'Status', 'message': said}, code)}"

    finding = kubernetes(master, of_pods(tmp_path), account=tmp_path)

    assert finding.found == found
    assert finding.trouble is not None
    happened, _, command = finding.trouble.message_parts()
    assert said in happened
    assert run in command
    warned = finding.verdict is Verdict.WARNING
    assert warned == (found in ("no room in the quota", "not examined"))
    assert isinstance(finding.trouble, Transient) == (code == 503)


def test_a_kubernetes_that_does_not_know_us_is_a_warning_and_a_silent_one_wrong(tmp_path: Path, serve: Serve) -> None:
    outside, environment = tmp_path / "none", of_pods(tmp_path)
    stranger = kubernetes(f"k8s://http://{serve({}, 403)}", environment, account=outside)
    silent = kubernetes(f"k8s://127.0.0.1:{free_port()}", environment, account=outside)

    assert stranger.verdict is Verdict.WARNING and "answers, and not to us: 403" in str(stranger.trouble)
    assert silent.verdict is Verdict.WRONG and isinstance(silent.trouble, Transient)


def test_files_that_sparks_settings_name_are_those_of_the_account(tmp_path: Path, serve: Serve) -> None:
    asked: list[tuple[str, str, Any]] = []
    (tmp_path / "mine").write_text("mine")
    environment = of_pods(tmp_path, kubernetes_authenticate_oauthTokenFile=str(tmp_path / "mine"))

    kubernetes(f"k8s://http://{serve({}, 201, asked)}", environment, account=tmp_path / "none")

    assert [token for _, token, _ in asked] == ["Bearer mine"]


def test_settings_that_cannot_be_read_are_wrong(tmp_path: Path) -> None:
    missing = of_pods(tmp_path, kubernetes_executor_podTemplateFile="/none.yaml")
    template = kubernetes("k8s://127.0.0.1:1", missing, account=tmp_path)
    size = kubernetes("k8s://127.0.0.1:1", of_pods(tmp_path, executor_memory="640mm"), account=tmp_path)

    assert [each.found for each in (template, size)] == ["no pod of an executor"] * 2
    assert "/none.yaml" in str(template.trouble)
    assert "640mm is no size of memory" in str(size.trouble)


def test_a_certificate_of_an_authority_that_is_not_known_here_is_a_warning(tmp_path: Path, serve: Serve) -> None:
    certificates = make_certificates(tmp_path)
    port = serve({"status": {"allowed": True}}, tls=certificates.server_context()).partition(":")[2]
    https = {"yarn_http_policy": "HTTPS_ONLY", "yarn_resourcemanager_webapp_https_address": f"localhost:{port}"}

    outside = kubernetes(f"k8s://localhost:{port}", {}, account=tmp_path / "none")
    on_yarn = of("yarn", **configured(tmp_path, **https))
    (tmp_path / "ca.crt").write_bytes(certificates.ca.read_bytes())
    in_a_pod = kubernetes(f"k8s://localhost:{port}", {}, account=tmp_path)
    (tmp_path / "others").mkdir()
    (tmp_path / "ca.crt").write_bytes(make_certificates(tmp_path / "others").ca.read_bytes())
    with_another = kubernetes(f"k8s://localhost:{port}", {}, account=tmp_path)

    for found in (outside, on_yarn):
        assert (found.verdict, found.found) == (Verdict.WARNING, "not examined")
        assert "certificate that this program does not trust" in str(found.trouble)
    assert in_a_pod.verdict is Verdict.OK
    assert (with_another.verdict, with_another.found) == (Verdict.WRONG, "certificate not trusted")


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_a_service_account_that_cannot_be_read_is_wrong(tmp_path: Path, serve: Serve, file: str) -> None:
    (tmp_path / file).write_bytes(b"\xff\xfe")

    found = kubernetes(f"k8s://http://{serve({})}", {}, account=tmp_path)

    assert (found.verdict, found.found) == (Verdict.WRONG, "no service account")
    assert f"ls -l {tmp_path}" in str(found.trouble)


@pytest.mark.parametrize("token", ["eyJhbGci.x\n", "eyJhbGci.x\nof-two-lines", "\neyJhbGci.x", "eyJhbGci.x "])
def test_a_token_with_a_line_end_is_wrong_and_not_shown(tmp_path: Path, serve: Serve, token: str) -> None:
    """Spark reads the file untrimmed, so what a token without its line end would get says nothing."""
    asked: list[tuple[str, str, Any]] = []
    (tmp_path / "token").write_text(token)

    found = kubernetes(f"k8s://http://{serve({}, 201, asked)}", of_pods(tmp_path), account=tmp_path)

    assert (found.verdict, found.found, asked) == (Verdict.WRONG, "the token has a line end", [])
    assert f"{tmp_path}/token has a line end" in str(found.trouble)
    assert "eyJ" not in str(found.trouble)
