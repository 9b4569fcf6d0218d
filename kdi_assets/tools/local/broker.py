"""A real Kafka broker (KRaft, one node) on the loopback for demo, benchmark and tests; it keeps its data."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import rmtree

from kdi_assets.runtime.jars import jar_paths
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.processes import Child
from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.settings import Settings
from kdi_assets.tools.local.errors import BrokerDied
from kdi_assets.tools.local.foreground import run_until_stopped

USUAL_PORT = 19092
ANSWER_SECONDS = 60.0
JVM_OPTIONS = ("-Xmx512m",)
# Halves the start time; not for measuring throughput. With the first tier alone the default code cache is 48 MB, which
# Spark fills within minutes; the JVM would then spend most of its time on compiling the same code again.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
LOGGING = Path(__file__).with_name("broker-log4j2.properties")

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",  # so long a start after a crash waits for the old session; default 9 s
    "broker.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",  # retention uses the messages' timestamps: old generated messages would vanish at once
}


class Broker:
    """A running broker; ``restart`` keeps its port and data."""

    def __init__(
        self,
        data: Path,
        *,
        home: Path,
        port: int,
        jvm_options: Sequence[str],
        properties: Mapping[str, str],
        class_path: Sequence[Path] = (),
    ):
        self.data = data
        self.port = port
        self._home = home
        self._jvm_options = tuple(jvm_options)
        self._properties = dict(properties)
        self._class_path = tuple(class_path)
        self._child = self._start()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._child.pid

    @property
    def log(self) -> Path:
        """Warnings and errors of all runs of the JVM."""
        return self.data / "broker.log"

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.exit_code()

    def stop(self) -> None:
        """Shut it down; kill it if that takes too long."""
        self._child.stop()

    def kill(self) -> None:
        """Kill it, like a crash (SIGKILL)."""
        self._child.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it again; raises ``BrokerDied`` if it does not start."""
        self.stop()
        self._child = self._start()

    def refusal(self, ending: str) -> BrokerDied:
        """The error with the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        tail = "\n".join([line for line in lines if not line.startswith("\tat ")][-6:])
        return BrokerDied(ending=ending, data=self.data, log=self.log, tail=tail)

    def _start(self) -> Child:
        self.data.mkdir(parents=True, exist_ok=True)
        java: list[str | Path] = [find_java(self._home) / "bin" / "java", *self._jvm_options]
        class_path = os.pathsep.join(map(str, (*jar_paths(self._home / "jars", "broker"), *self._class_path)))
        java += [f"-Dlog4j2.configurationFile={LOGGING}", "-cp", class_path]
        if not self._logs.is_dir():
            self._format(java)
        child = Child([*java, "kafka.Kafka", self._write_properties(self._logs)], log=self.log)
        try:
            if failed := child.await_answer(lambda: _answers(self.port), seconds=ANSWER_SECONDS):
                raise self.refusal(failed)
        except BaseException:
            child.kill()
            raise
        return child

    @property
    def _logs(self) -> Path:
        return self.data / "logs"

    def _format(self, java: Sequence[str | Path]) -> None:
        # Formatted elsewhere and renamed: a format that was interrupted would be taken for a broker's data.
        new = self.data / "logs.new"
        rmtree(new, ignore_errors=True)
        # With "=": an id may begin with "-", which alone would be an option.
        cluster_id = f"--cluster-id={urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')}"
        tool = [*java, "kafka.tools.StorageTool", "format", cluster_id, "-c", self._write_properties(new)]
        with self.log.open("ab") as log:
            code = subprocess.run(tool, stdout=log, stderr=log, check=False).returncode
        if code:
            raise self.refusal(f"could not be set up (exit code {code})")
        new.rename(self._logs)

    def _write_properties(self, logs: Path) -> Path:
        while (controller := free_port()) == self.port:
            continue
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(logs / "messages"),
            # A folder of its own: only then Kafka locks the metadata before it writes. Otherwise a second broker on the
            # same data would damage the first one's metadata before it finds the messages locked.
            "metadata.log.dir": str(logs / "metadata"),
        }
        lines = [f"{name}={value}\n" for name, value in {**PROPERTIES, **addresses, **self._properties}.items()]
        path = self.data / "server.properties"
        replace_file(path, "".join(lines).encode())
        return path


def start_broker(
    data: Path,
    *,
    port: int | None = None,
    home: Path | None = None,
    jvm_options: Sequence[str] = JVM_OPTIONS,
    properties: Mapping[str, str] | None = None,
    class_path: Sequence[Path] = (),
) -> Broker:
    """Start a broker and wait until it answers; it ends at the latest with this process.

    Args:
        data: Folder of its data, kept between runs.
        port: The preferred port; if it is taken, and by default, a free one (``Broker.port``).
        home: Folder with the jars; by default ``KDI_HOME``.
        properties: Broker properties that extend and override ``PROPERTIES``.
        class_path: Jars and folders of classes that ``properties`` name, besides the broker's own.

    Raises:
        BrokerDied: It does not start.
        JarMissing: Its jars are missing.
        JavaMissing: There is no Java.
    """
    home = home or Settings.from_environment().home
    return Broker(
        data.absolute(),
        home=home,
        port=free_port(port),
        jvm_options=jvm_options,
        properties=properties or {},
        class_path=class_path,
    )


def run_broker(data: Path, *, home: Path, port: int, report: Callable[[str], None]) -> None:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    Args:
        report: Called once, when the broker answers.

    Raises:
        BrokerDied: It does not come up, or ended by itself.
    """

    def start() -> Broker:
        taken = "" if is_free(port) else f" (port {port} is taken)"
        broker = start_broker(data, port=port, home=home)
        report(f"Kafka answers on {broker.bootstrap_servers}{taken}, data in {broker.data}")
        return broker

    def check(broker: Broker) -> None:
        if (code := broker.exit_code()) is not None:
            raise broker.refusal(f"ended with exit code {code}")

    run_until_stopped(start, check=check)


def _answers(port: int) -> bool:
    if is_free(port):
        return False  # otherwise the client writes an error for each attempt
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


# Below the kernel's range for outgoing connections: in that range, a client that tries to reach a restarting broker may
# get the same port, connect to itself, and block the port.
PORTS = range(20_000, 32_768)


def free_port(preferred: int | None = None) -> int:
    """A free port of 127.0.0.1: ``preferred`` or a random one; raises ``OSError`` if a hundred ports are taken."""
    for port in ([] if preferred is None else [preferred]) + random.sample(PORTS, 100):
        if is_free(port):
            return port
    raise OSError("no free port on 127.0.0.1")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do; otherwise connections that were closed a moment ago make the port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
