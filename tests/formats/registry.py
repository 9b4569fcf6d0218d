"""A real schema registry, Apicurio, from its published archive: fetched once, started on the loopback, in memory."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.runtime.jars import LOG, ivy_jvm
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import QUICK_START, free_port, is_free

ORGANISATION, MODULE, VERSION = "io.apicurio", "apicurio-registry-app", "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
API = "/apis/ccompat/v7"
ANSWER_SECONDS = 60.0
# Spark's own resolver accepts no classifier, Ivy's module description does.
IVY_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kdi" module="tests"/>
  <dependencies>
    <dependency org="{ORGANISATION}" name="{MODULE}" rev="{VERSION}" transitive="false">
      <artifact name="{MODULE}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class RealRegistry:
    """A running registry: its address, and its schemas."""

    def __init__(self, folder: Path, *, home: Path, log: Path) -> None:
        """Start it, and wait until it answers."""
        self._port = free_port()
        java = find_java(home, environment={"KDI_JAVA": "wheel"})  # its classes are of Java 21
        listens = "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"
        # Of each registry on the machine; by default all would take port 9000.
        manages = "-Dquarkus.management.host=127.0.0.1", "-Dquarkus.management.port=0"
        options = ("-Xmx512m", *QUICK_START, *listens, *manages)
        self._child = Child([java / "bin" / "java", *options, "-jar", folder / "quarkus-run.jar"], log=log)
        try:
            self._await_answer(log)
        except BaseException:
            self._child.kill()
            raise

    @property
    def described(self) -> Registry:
        """The registry as streams know it."""
        return Registry("main", f"http://127.0.0.1:{self._port}{API}")

    def stop(self) -> None:
        """End it; its schemas are gone."""
        self._child.stop()

    def register(
        self, subject: str, text: str, *, type_: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
    ) -> int:
        """Register a schema as producers do; return its id.

        Args:
            references: Name, subject and version of each.
        """
        named = [{"name": name, "subject": of, "version": version} for name, of, version in references]
        body = {"schema": text, "schemaType": type_, "references": named}
        status, told = self._say("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        if status != 200:
            raise ValueError(f"the registry does not take {subject}: {status} {told}")
        return int(told["id"])

    def delete(self, subject: str, version: int) -> None:
        """Delete a version softly: a request for deleted versions still gets it."""
        status, told = self._say("DELETE", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if status != 200:
            raise ValueError(f"the registry does not delete {subject}/{version}: {status} {told}")

    def _await_answer(self, log: Path) -> None:
        until = time.monotonic() + ANSWER_SECONDS
        while is_free(self._port) or self._say("GET", "/subjects")[0] != 200:
            if self._child.exit_code() is not None or time.monotonic() > until:
                raise ValueError(f"Apicurio did not answer: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def _say(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        try:
            connection.request(method, API + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return response.status, json.loads(content) if response.status < 500 and content else content


def fetched_registry(home: Path) -> Path:
    """The unpacked folder of Apicurio; the first process fetches it, others wait."""
    folder = home / f"{MODULE}-{VERSION}"
    with (home / f".{folder.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=home, prefix=".apicurio-") as temporary:
                unpacked = Path(temporary) / folder.name
                unpacked.mkdir()
                with _archive(Path(temporary), home) as archive:
                    subprocess.run(["tar", "-xf", archive, "-C", unpacked], check=True)
                unpacked.rename(folder)
    (jar,) = folder.rglob("quarkus-run.jar")
    return jar.parent


@contextmanager
def _archive(cache: Path, home: Path) -> Iterator[Path]:
    """The archive as the registry of jars serves it, with Spark's Ivy, its settings and its mirrors."""
    with ivy_jvm(cache, home) as jvm:
        told = jvm.org.apache.spark.util.DependencyUtils.getIvyProperties()
        some = jvm.scala.Option.apply
        utils, say = jvm.org.apache.spark.util.MavenUtils, jvm.java.lang.System.err
        where = (some(told.repositories()), some(told.ivyRepoPath()))
        settings = (
            utils.loadIvySettings(told.ivySettingsPath(), *where, say)
            if told.ivySettingsPath()
            else utils.buildIvySettings(*where, False, say)
        )
        description = cache / "module.xml"
        description.write_text(IVY_MODULE)
        report = jvm.org.apache.ivy.Ivy.newInstance(settings).resolve(jvm.java.io.File(str(description)))
        served = [Path(str(one.getLocalFile())) for one in report.getAllArtifactsReports() if one.getLocalFile()]
        if len(served) != 1:
            raise ValueError(f"{MODULE} was not fetched: {(cache / LOG).read_text()[-2000:]}")
        with served[0].open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise ValueError(f"{MODULE}: the archive has SHA-256 {found}, not {SHA256}")
        yield served[0]
