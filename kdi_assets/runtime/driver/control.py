"""How a process and the warm driver notice each other: one loopback connection of JSON lines, held while attached.

The process opens it before it touches the JVM, the driver reads it until it ends. The kernel closes the connections of
a process however it dies, so the end of this one is the news of that death, without a heartbeat.
"""

from __future__ import annotations

import hmac
import json
import socket
import socketserver
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kdi_assets.runtime.driver.errors import DriverGone
from kdi_assets.runtime.driver.lock import driver_is_there
from kdi_assets.runtime.whole_files import replace_file

ANSWER_SECONDS = 10.0  # the driver answers in milliseconds; whoever listens there and stays silent is not the driver
START_SECONDS = 60.0  # a JVM takes seven of them where the machine has nothing else to do
GAP_SECONDS = 5.0  # a supervisor waits for one of them, and the Python of the next driver takes another or two


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the warm driver listens, and the secret that opens both doors: the JVM's and the owner's."""

    pid: int
    gateway_port: int
    control_port: int
    secret: str
    spark_version: str

    @classmethod
    def read(cls, home: Path) -> DriverAddress:
        """The address that the driver of ``home`` left; it may have died since.

        Raises:
            DriverGone: There is no such file, or it is not one of ours.
        """
        try:
            return cls(**json.loads(address_file(home).read_text()))
        except FileNotFoundError as missing:
            raise DriverGone(home=home, reason="none has been started there, or it has ended") from missing
        except (ValueError, TypeError) as broken:
            raise DriverGone(home=home, reason=f"{address_file(home)} is not a driver's file") from broken

    def publish(self, home: Path) -> None:
        """Let processes of the same user attach."""
        replace_file(address_file(home), json.dumps(asdict(self)).encode(), mode=0o600)


def address_file(home: Path) -> Path:
    """The file that names the warm driver of ``home``; readable by its owner only, since it holds the secret."""
    return home / "driver.json"


class ControlConnection:
    """A process's end of the connection; the driver takes its end for the process's end."""

    def __init__(self, home: Path, **hello: object) -> None:
        """Say hello to the driver of ``home``.

        Raises:
            DriverGone: It does not run, does not answer, or is about to end.
        """
        self.address = DriverAddress.read(home)
        self.home = home
        try:
            self._socket = socket.create_connection(("127.0.0.1", self.address.control_port), ANSWER_SECONDS)
        except OSError as refused:
            raise DriverGone(home=home, reason=f"process {self.address.pid} does not answer") from refused
        self._lines = self._socket.makefile("rb")
        self.answer = self._say_hello(hello)

    def tell(self, **message: object) -> None:
        """Send a message that needs no answer.

        Raises:
            DriverGone: The driver has hung up.
        """
        try:
            self._socket.sendall(_line({"secret": self.address.secret, **message}))
        except OSError as ended:
            raise DriverGone(home=self.home, reason="it ended while this process was attached") from ended

    def hung_up(self) -> bool:
        """Whether the driver has ended the conversation."""
        try:
            self._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True  # it says nothing unasked: what there is to read is the end

    def driver_ended(self) -> bool:
        """Whether the driver has hung up, or its JVM is gone and it has yet to notice."""
        with socket.socket() as probe:
            return self.hung_up() or probe.connect_ex(("127.0.0.1", self.address.gateway_port)) != 0

    def close(self) -> None:
        """Hang up; the driver then cancels what this process left running."""
        self._lines.close()
        self._socket.close()

    def _say_hello(self, hello: dict[str, object]) -> dict[str, Any]:
        try:
            self.tell(**hello)
            answer: dict[str, Any] = json.loads(self._lines.readline())
        except (OSError, ValueError) as silent:
            self.close()
            reason = f"what listens in place of process {self.address.pid} is not the driver, or is about to end"
            raise DriverGone(home=self.home, reason=reason) from silent
        self._socket.settimeout(None)
        return answer


def connect_to_driver(home: Path, *, within_seconds: float = START_SECONDS, **hello: object) -> ControlConnection:
    """Say hello to the driver of ``home``, and wait for one that is about to be there.

    A supervisor starts another driver when one died, and a driver takes another JVM when it served enough; who comes
    then need not fail.

    Raises:
        DriverGone: None runs and none starts, or none was ready in time.
    """
    began = seen = time.monotonic()
    while True:
        try:
            return ControlConnection(home, **hello)
        except DriverGone:
            now = time.monotonic()
            if driver_is_there(home):
                seen = now
            if now - seen > GAP_SECONDS or now - began > within_seconds:  # between two drivers nobody holds the lock
                raise
        time.sleep(0.1)


def driver_status(home: Path) -> dict[str, Any]:
    """Process ids, clients and use of the driver of ``home``.

    Raises:
        DriverGone: It does not run or does not answer.
    """
    with closing(ControlConnection(home, ask="status")) as connection:
        return connection.answer


class DriverOwner(Protocol):
    """The driver's side of the conversations; called from one thread for each."""

    def welcome(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to the first message; none refuses."""

    def hear(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        """A later message of a process that was welcomed."""

    def farewell(self, hello: dict[str, Any]) -> None:
        """The connection of a process that was welcomed has ended: it detached or died."""


class ControlServer(socketserver.ThreadingTCPServer):
    """The driver's end: loopback only, one thread per attached process."""

    daemon_threads = True

    def __init__(self, owner: DriverOwner, *, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.owner = owner
        self.secret = secret
        self.conversations: set[socket.socket] = set()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def hang_up(self) -> None:
        """Take no further process, and tell those attached that this is the end."""
        self.shutdown()
        self.server_close()
        for conversation in tuple(self.conversations):
            with suppress(OSError):
                conversation.shutdown(socket.SHUT_RDWR)


class _Conversation(socketserver.StreamRequestHandler):
    server: ControlServer

    def handle(self) -> None:
        self.server.conversations.add(self.connection)
        try:
            with suppress(OSError):  # a reset is an end like any other
                self._converse()
        finally:
            self.server.conversations.discard(self.connection)

    def _converse(self) -> None:
        messages = self._messages()
        hello = next(messages, None)
        answer = self.server.owner.welcome(hello) if hello is not None else None
        if hello is None or answer is None:
            return
        try:
            self.wfile.write(_line(answer))
            for message in messages:
                self.server.owner.hear(hello, message)
        finally:
            self.server.owner.farewell(hello)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Messages up to the end of the connection, or to the first that does not know the secret."""
        for line in self.rfile:
            try:
                message = json.loads(line)
                if not hmac.compare_digest(message.pop("secret"), self.server.secret):
                    return
            except (ValueError, KeyError, TypeError, AttributeError):
                return
            yield message


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
