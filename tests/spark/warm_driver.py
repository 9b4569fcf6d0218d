"""`kdi driver run` in a home of its own, and processes that attach to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from kdi_assets.runtime.driver.control import driver_status
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import QUICK_START
from tests.waiting import wait_until

KDI = Path(sys.executable).with_name("kdi")
CLIENT = """
import sys, threading
from kdi_assets.runtime.driver.control import DriverGone
from kdi_assets.runtime.spark import close_session, open_session, use_in_thread
from kdi_assets.settings import Settings

def say(*words):
    print(*words, flush=True)

settings = Settings.from_environment()
"""
ENDLESS = "spark.range(1 << 60).selectExpr('max(id % 7)').collect()"


class Client:
    """A process that may attach."""

    def __init__(self, body: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-c", CLIENT + body]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def says(self) -> str:
        """The next line of its output; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=180)


class Driver:
    """A warm driver of its own home."""

    def __init__(self, home: Path, *options: str, jars: Path) -> None:
        self.home = home
        home.mkdir()
        (home / "jars").symlink_to(jars)
        (home / "spark" / "left by a killed JVM").mkdir(parents=True)
        settings = {"KDI_HOME": str(home), "KDI_DRIVER": "shared", "KDI_LAKE": str(home / "lake")}
        jvm = {"KDI_SPARK_MASTER": "local[2]", "SPARK_DRIVER_MEMORY": "1g", "SPARK_SUBMIT_OPTS": " ".join(QUICK_START)}
        self.environment = {**os.environ, **settings, **jvm, "HTTPS_PROXY": "http://proxy.example:3128"}
        self.process = Child([KDI, "driver", "run", *options], log=home / "output", environment=self.environment)
        self.clients: list[Client] = []
        self.wait_for("driver ready")

    def client(self, body: str) -> Client:
        client = Client(body, self.environment)
        self.clients.append(client)
        return client

    def answer(self, body: str) -> str:
        """The last output of a client, once it has ended well."""
        client = self.client(body)
        output, _ = client.process.communicate(timeout=120)
        assert client.process.returncode == 0
        return output.strip()

    def jobs(self) -> int:
        return int(driver_status(self.home)["jobs"])

    def jvm(self) -> psutil.Process:
        (jvm,) = psutil.Process(self.process.pid).children()
        return jvm

    def output(self) -> str:
        return (self.home / "output").read_text()

    def wait_for(self, line: str, *, times: int = 1) -> None:
        wait_until(lambda: self.output().count(line) >= times or self.process.exit_code() is not None)
        assert self.output().count(line) >= times, self.output()

    def ended(self) -> bool:
        return self.process.exit_code() is not None

    def end_clients(self) -> None:
        while self.clients:
            self.clients.pop().end()

    def stop(self) -> None:
        self.end_clients()
        self.process.stop()
