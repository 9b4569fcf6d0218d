"""Spark's own client fetches the jars, here from the test's registry, which shows faults on request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kdi_assets.runtime.errors import JarHashDiffers, JarsNotFetched
from kdi_assets.runtime.jars import Jar, fetch_jars
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import QUICK_START

CONTENT = b"what the lock names" * 10_000
JAR = Jar("spark", "org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest())
POM = b"""<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>thing</artifactId><version>1.0</version></project>"""


class Registry(ThreadingHTTPServer):
    """Serves one module; ``served`` is the body of its jar, ``promised`` the length that its header claims."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.served = CONTENT
        self.promised = len(CONTENT)


class Answer(BaseHTTPRequestHandler):
    server: Registry

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        pom, jar = self.path.endswith(".pom"), self.path.endswith(".jar")
        body = POM if pom else self.server.served
        self.send_response(200 if pom or jar else 404)
        self.send_header("Content-Length", str(self.server.promised if jar else len(POM) if pom else 0))
        self.end_headers()
        if self.command == "GET" and (pom or jar):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No output: Ivy makes many requests."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The only registry in Ivy's settings, configured like a mirror."""
    with Registry() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "ivy.xml").write_text(
            '<ivysettings><settings defaultResolver="here"/><resolvers><ibiblio name="here" m2compatible="true" '
            f'root="http://127.0.0.1:{server.server_port}/"/></resolvers></ivysettings>'
        )
        (conf / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {conf / 'ivy.xml'}\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
        monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_START))
        yield server
        server.shutdown()


def fetch(tmp_path: Path, settings: Settings) -> None:
    """Fetch the one jar of a lock into ``jars``."""
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps([{"group": JAR.group, "coordinate": JAR.coordinate, "sha256": JAR.sha256}]))
    fetch_jars(tmp_path / "jars", home=settings.home, report=lambda _: None, lock=lock)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below, including hidden ones."""
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_jar_cut_off_or_another_than_the_locked_one_leaves_nothing_and_is_later_not_taken_from_a_cache(
    registry: Registry, settings: Settings, tmp_path: Path
) -> None:
    for served, refusal in ((CONTENT[: len(CONTENT) // 2], JarsNotFetched), (CONTENT[::-1], JarHashDiffers)):
        registry.served = served
        with pytest.raises(refusal, match="org.example:thing:1.0"):
            fetch(tmp_path, settings)
        assert contents(tmp_path / "jars") == {}

    registry.served = CONTENT
    fetch(tmp_path, settings)
    assert contents(tmp_path / "jars" / "spark")["thing-1.0.jar"] == CONTENT
