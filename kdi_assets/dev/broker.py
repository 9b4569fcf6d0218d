"""A real Kafka broker on the loopback (KRaft, one node) for demo, benchmark and tests; it keeps its data."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree

from kdi_assets.dev.errors import BrokerDied
from kdi_assets.runtime.jars import jar_paths
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.processes import Child, stop_signals
from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.settings import Settings

USUAL_PORT = 19092
ANSWER_SECONDS = 60.0
JVM_OPTIONS = ("-Xmx512m",)
# Halves the start; wrong where throughput is measured. The code cache of the first tier alone is 48 MB: Spark fills it
# within minutes, and the JVM then spends more on sweeping and compiling anew than on its work.
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
    "broker.session.timeout.ms": "3000",  # so long a start after a crash waits for the dead one's session; usually 9 s
    "broker.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",  # retention goes by the messages' own time stamps: made-up old ones would vanish at once
}


class Broker:
    """A running broker: where it answers, and how to end it. ``port`` and data outlast ``restart``."""

    def __init__(self, data: Path, *, home: Path, port: int, jvm_options: Sequence[str], properties: Mapping[str, str]):
        self.data = data
        self.port = port
        self._home = home
        self._jvm_options = tuple(jvm_options)
        self._properties = dict(properties)
        self._child = self._start()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._child.pid

    @property
    def log(self) -> Path:
        """What the JVM writes: warnings and errors of all its runs."""
        return self.data / "broker.log"

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.exit_code()

    def stop(self) -> None:
        """End it in good order; at once, if that takes too long."""
        self._child.stop()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._child.kill()

    def restart(self) -> None:
        """Start it again on its port and data; stops it first if it runs.

        Raises:
            BrokerDied: It does not come up.
        """
        self.stop()
        self._child = self._start()

    def refusal(self, ending: str) -> BrokerDied:
        """The error that says what became of it."""
        lines = self.log.read_text(errors="replace").splitlines()
        tail = "\n".join([line for line in lines if not line.startswith("\tat ")][-6:])
        return BrokerDied(ending=ending, data=self.data, log=self.log, tail=tail)

    def _start(self) -> Child:
        self.data.mkdir(parents=True, exist_ok=True)
        java: list[str | Path] = [find_java(self._home) / "bin" / "java", *self._jvm_options]
        class_path = os.pathsep.join(str(jar) for jar in jar_paths(self._home / "jars", "broker"))
        java += [f"-Dlog4j2.configurationFile={LOGGING}", "-cp", class_path]
        if not self._logs.is_dir():
            self._format(java)
        child = Child([*java, "kafka.Kafka", self._write_properties(self._logs)], log=self.log)
        try:
            self._await_answer(child)
        except BaseException:
            child.kill()
            raise
        return child

    @property
    def _logs(self) -> Path:
        return self.data / "logs"

    def _format(self, java: Sequence[str | Path]) -> None:
        # Beside its place and renamed: a format that was cut off would be taken for a broker's data.
        new = self.data / "logs.new"
        rmtree(new, ignore_errors=True)
        # With "=": an id may begin with "-", and would be taken for an option.
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
            # Apart, since Kafka locks it before it writes there only then. In one folder, a second broker on the same
            # data writes into the first one's metadata, and ruins it, before it finds the messages locked.
            "metadata.log.dir": str(logs / "metadata"),
        }
        lines = [f"{name}={value}\n" for name, value in {**PROPERTIES, **addresses, **self._properties}.items()]
        path = self.data / "server.properties"
        replace_file(path, "".join(lines).encode())
        return path

    def _await_answer(self, child: Child) -> None:
        """Return once a client gets an answer."""
        until = time.monotonic() + ANSWER_SECONDS
        while not _answers(self.port):
            if (code := child.exit_code()) is not None:
                raise self.refusal(f"ended with exit code {code} before it answered")
            if time.monotonic() > until:
                raise self.refusal(f"did not answer on port {self.port} within {ANSWER_SECONDS:.0f} s")
            time.sleep(0.05)


def start_broker(
    data: Path,
    *,
    port: int | None = None,
    home: Path | None = None,
    jvm_options: Sequence[str] = JVM_OPTIONS,
    properties: Mapping[str, str] | None = None,
) -> Broker:
    """Start a broker and wait until it answers; it ends with this process at the latest.

    Args:
        data: Folder of its data, kept from run to run.
        port: The port to prefer; if it is taken, and by default, a free one (``Broker.port``).
        home: Where the jars lie; by default ``KDI_HOME``.
        properties: Broker properties beside and above ``PROPERTIES``.

    Raises:
        BrokerDied: It does not come up.
        JarMissing: Its jars are not there.
        JavaMissing: No Java to run it.
    """
    home = home or Settings.from_environment().home
    return Broker(
        data.absolute(), home=home, port=free_port(port), jvm_options=jvm_options, properties=properties or {}
    )


def run_broker(data: Path, *, home: Path, port: int, report: Callable[[str], None]) -> None:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    Args:
        report: Is called once, when the broker answers.

    Raises:
        BrokerDied: It does not come up, or ended by itself.
    """
    asked: list[bool] = []  # not an Event: its lock may be held where a signal interrupts
    with stop_signals(lambda: asked.append(True)):
        taken = "" if is_free(port) else f" (port {port} is taken)"
        broker = start_broker(data, port=port, home=home)
        report(f"Kafka answers on {broker.bootstrap_servers}{taken}, data in {broker.data}")
        while not asked:
            if (code := broker.exit_code()) is not None:
                raise broker.refusal(f"ended with exit code {code}")
            time.sleep(0.2)
        broker.stop()


def _answers(port: int) -> bool:
    if is_free(port):
        return False  # the client would complain on standard error about each attempt
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


# Below the range from which kernels draw the ports of outgoing connections: there, a client that keeps trying to reach
# a broker that is just being restarted may be given the very port it tries, connect to itself, and hold it.
CHOICE = range(20_000, 32_768)


def free_port(preferred: int | None = None) -> int:
    """A port of 127.0.0.1 on which nothing listens: ``preferred`` when it is free, else a random one.

    Raises:
        OSError: A hundred random ports were all taken.
    """
    for port in _candidates(preferred):
        if is_free(port):
            return port
    raise OSError("no free port on 127.0.0.1")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do; without it, closed connections that still linger would make their server's port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _candidates(preferred: int | None) -> Iterator[int]:
    if preferred is not None:
        yield preferred
    yield from random.sample(CHOICE, 100)
