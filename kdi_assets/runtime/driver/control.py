"""The control connection between a process and the warm driver: JSON lines on the loopback, open while attached.

The process opens it before it uses the JVM, and the driver reads until its end. The kernel closes the connections of a
dead process, so the driver learns of its death without a heartbeat.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import socket
import socketserver
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from kdi_assets.runtime.errors import (
    DriverDiffers,
    DriverGone,
    DriverHangs,
    DriverOfOtherS3,
    DriverRuns,
    FolderNotWritable,
)
from kdi_assets.runtime.jars import release_digest
from kdi_assets.runtime.s3_access import s3_location
from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.settings import Settings

ANSWER_SECONDS = 10.0  # the driver answers in milliseconds; a silent listener is another program


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """The warm driver's ports, and the secret for both.

    Attributes:
        s3: ``s3_location`` of the driver.
        lake: The driver's lake; empty of drivers of before.
        kernel: ``release_digest`` of the driver; the same.
    """

    pid: int
    gateway_port: int
    control_port: int
    secret: str
    spark_version: str
    s3: Mapping[str, str | None] = field(default_factory=dict)
    lake: str = ""
    kernel: str = ""

    @classmethod
    def read(cls, folder: Path) -> DriverAddress:
        """The address in the file of ``folder``; the driver may have died since.

        Raises:
            DriverGone: There is no such file, or it is not a driver's.
        """
        try:
            said, known = json.loads(address_file(folder).read_text()), {field.name for field in fields(cls)}
            return cls(**{name: value for name, value in said.items() if name in known})  # a later release says more
        except FileNotFoundError as missing:
            raise DriverGone(home=folder, reason="none has been started there, or it has ended") from missing
        except OSError as refused:
            reason = f"{address_file(folder)} cannot be read: {refused.strerror} (is it another user's?)"
            raise DriverGone(home=folder, reason=reason) from refused
        except (ValueError, TypeError, AttributeError) as broken:
            raise DriverGone(home=folder, reason=f"{address_file(folder)} is not a driver's file") from broken

    def publish(self, folder: Path) -> None:
        """Let processes of the same user attach."""
        replace_file(address_file(folder), json.dumps(asdict(self)).encode(), mode=0o600)

    def refuse_other(self, settings: Settings) -> None:
        """Refuse a driver that is not for this process.

        Raises:
            DriverDiffers: It has another Spark, or kernels of another release: what this process calls may be missing
                there, or count and commit otherwise.
            DriverOfOtherS3, CredentialsMissing, CredentialsRefused: As ``refuse_other_s3``.
        """
        for part, theirs, ours in (
            ("Spark", self.spark_version, version("pyspark")),
            ("the jars and the kernel", self.kernel or "of an earlier release", release_digest()),
        ):
            if theirs != ours:
                raise DriverDiffers(theirs=f"{part} {theirs}", ours=f"{part} {ours}")
        self.refuse_other_s3(settings)

    def refuse_other_s3(self, settings: Settings) -> None:
        """Refuse a driver that writes to another S3 than the one from which this process reads its lake.

        Raises:
            DriverOfOtherS3: Both have a lake on S3, with another endpoint or region; or the driver does not know the
                buckets of this process.
            CredentialsMissing, CredentialsRefused: The profile of AWS cannot be read.
        """
        ours = s3_location(settings) if self.s3 or settings.s3_buckets else {}
        theirs: Mapping[str, str | None] = {"list of buckets": None, **self.s3}  # a driver of before has no list
        for setting in theirs.keys() & ours.keys():
            if theirs[setting] != ours[setting]:
                there, here = (found[setting] or "not set" for found in (theirs, ours))
                raise DriverOfOtherS3(setting=setting, theirs=there, ours=here)


def address_file(folder: Path) -> Path:
    """The file with the address of the warm driver of ``folder``; it has the secret, so only its owner can read it."""
    return folder / "driver.json"


class ControlConnection:
    """A process's end of the connection; when it closes, the driver takes the process for dead."""

    def __init__(self, folder: Path, *, within_seconds: float = ANSWER_SECONDS, **hello: object) -> None:
        """Connect to the driver of ``folder`` and send the first message.

        Args:
            within_seconds: For the connection, and again for the answer.

        Raises:
            DriverGone: It does not run, or is about to end.
            DriverHangs: It runs, and does not answer in time.
        """
        self.address = DriverAddress.read(folder)
        self.folder = folder
        try:
            self._socket = socket.create_connection(("127.0.0.1", self.address.control_port), within_seconds)
        except OSError as refused:
            raise self._gone(refused, "does not answer") from refused
        self._lines = self._socket.makefile("rb")
        self.answer = self._greet(hello)

    def send(self, **message: object) -> None:
        """Send a message without an answer; raises ``DriverGone`` if the driver has closed the connection."""
        try:
            self._socket.sendall(_line({"secret": self.address.secret, **message}))
        except OSError as ended:
            raise DriverGone(home=self.folder, reason="it ended while this process was attached") from ended

    def is_closed(self) -> bool:
        """Whether the driver has closed the connection."""
        try:
            self._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the connection is broken
        return True  # the driver sends nothing by itself, so what can be read is the end

    def driver_ended(self) -> bool:
        """Whether the driver has closed the connection, or its JVM has ended and the driver has not noticed yet."""
        with socket.socket() as probe:
            return self.is_closed() or probe.connect_ex(("127.0.0.1", self.address.gateway_port)) != 0

    def close(self) -> None:
        """Close the connection; the driver then cancels the jobs of this process."""
        self._lines.close()
        self._socket.close()

    def _greet(self, hello: dict[str, object]) -> dict[str, Any]:
        try:
            self.send(**hello)
            answer: dict[str, Any] = json.loads(self._lines.readline())
        except (OSError, ValueError) as silent:
            self.close()
            raise self._gone(silent, "is not the driver any more, or is about to end") from silent
        self._socket.settimeout(None)
        return answer

    def _gone(self, failure: Exception, otherwise: str) -> DriverGone:
        """The error of a connection that failed. Of a driver that hangs the kernel takes a few connections, and then
        none: it is one error in both cases.
        """
        pid = self.address.pid
        if isinstance(failure, TimeoutError) and driver_is_there(self.folder):
            return DriverHangs(home=self.folder, reason=f"process {pid} hangs or is stopped", pid=pid)
        return DriverGone(home=self.folder, reason=f"process {pid} {otherwise}")


def driver_status(folder: Path, *, within_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Process ids, clients, jobs and idle time of the driver of ``folder``.

    Raises:
        DriverGone: It does not run or does not answer.
    """
    with closing(ControlConnection(folder, within_seconds=within_seconds, ask="status")) as connection:
        return connection.answer


class DriverOwner(Protocol):
    """The driver's handlers of connections; each connection calls them from its own thread."""

    def on_connect(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to the first message; none closes the connection."""

    def on_message(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        """Handle a later message."""

    def on_disconnect(self, hello: dict[str, Any]) -> None:
        """Handle the end of a connection that was answered: the process detached or died."""


class ControlServer(socketserver.ThreadingTCPServer):
    """The driver's end: loopback only, one thread per attached process."""

    daemon_threads = True

    def __init__(self, owner: DriverOwner, *, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.owner = owner
        self.secret = secret
        self.connections_open: set[socket.socket] = set()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close_all(self) -> None:
        """Take no more connections, and close those that are open."""
        self.shutdown()
        self.server_close()
        for connection in tuple(self.connections_open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


GREETING_SECONDS = 10.0
"""How long a connection may take to send its first message, which shows that it knows the secret."""
LONGEST_LINE = 1 << 20
"""Bytes of a message."""


class _Connection(socketserver.StreamRequestHandler):
    server: ControlServer

    def handle(self) -> None:
        self.server.connections_open.add(self.connection)
        try:
            with suppress(OSError):  # a reset is an end too
                self._serve()
        finally:
            self.server.connections_open.discard(self.connection)

    def _serve(self) -> None:
        messages = self._messages()
        self.connection.settimeout(GREETING_SECONDS)
        hello = next(messages, None)
        self.connection.settimeout(None)
        answer = self.server.owner.on_connect(hello) if hello is not None else None
        if hello is None or answer is None:
            return
        try:
            self.wfile.write(_line(answer))
            for message in messages:
                self.server.owner.on_message(hello, message)
        finally:
            self.server.owner.on_disconnect(hello)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Messages until the connection ends, or until the first one without the secret."""
        # Any process of this machine can connect: without limits, one that sends no line end would fill the memory.
        for line in iter(partial(self.rfile.readline, LONGEST_LINE), b""):
            if not line.endswith(b"\n"):
                return
            try:
                message = json.loads(line)
                if not hmac.compare_digest(message.pop("secret"), self.server.secret):
                    return
            except (ValueError, KeyError, TypeError, AttributeError):
                return
            yield message


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


CHECK_SECONDS = 0.5  # a check for a driver holds the lock for a moment


@contextmanager
def only_driver(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``; the kernel releases it when this process ends in any way.

    Raises:
        DriverRuns: Another process holds it.
        FolderNotWritable: The folder, or the lock, is another user's.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context(_lock_file(folder))
        except OSError as refused:
            raise FolderNotWritable.of(folder, refused) from refused
        if not lock_within(lock, CHECK_SECONDS):
            raise DriverRuns(home=folder)
        yield


def driver_is_there(folder: Path) -> bool:
    """Whether a driver of ``folder`` runs, starts or ends."""
    try:
        # Not made here: the first one who looks may be root, and then no driver of another user could open the file.
        with _lock_file(folder, os.O_RDONLY) as lock:
            return not _take(lock, fcntl.LOCK_SH)  # released with the file
    except OSError:  # there was no driver yet, or the folder belongs to another user
        return False


@contextmanager
def until_driver_ended(folder: Path) -> Iterator[None]:
    """After the body, wait until ``folder`` has no driver."""
    with _lock_file(folder) as lock:
        yield
        fcntl.flock(lock, fcntl.LOCK_EX)


@contextmanager
def _lock_file(folder: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    lock = os.open(folder / "driver.lock", flags, 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def lock_within(lock: int, seconds: float) -> bool:
    """Whether this process got the open file ``lock`` for itself in that time; it holds it until it closes the file."""
    until = time.monotonic() + seconds
    while not _take(lock, fcntl.LOCK_EX):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _take(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
