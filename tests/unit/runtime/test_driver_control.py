"""The protocol between a process and the warm driver, without a JVM."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyspark
import pytest

from kdi_assets.runtime.driver import control, drivers
from kdi_assets.runtime.driver.control import (
    LONGEST_LINE,
    ControlConnection,
    ControlServer,
    DriverAddress,
    address_file,
    driver_is_there,
    only_driver,
)
from kdi_assets.runtime.driver.driver import run_driver
from kdi_assets.runtime.driver.drivers import connect_to_driver, uses_warm_driver
from kdi_assets.runtime.environment import whoami
from kdi_assets.runtime.errors import DriverDiffers, DriverGone, DriverHangs, DriverOfOtherS3, FolderNotWritable
from kdi_assets.runtime.jars import release_digest
from kdi_assets.runtime.s3_access import s3_location
from kdi_assets.settings import DriverMode, Settings

SECRET = "only those who may read the file know"


class Listener:
    """An owner that keeps its calls, in order."""

    def __init__(self) -> None:
        self.told: SimpleQueue[tuple[str, dict[str, Any]]] = SimpleQueue()

    def on_connect(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        self.told.put(("on_connect", hello))
        return None if hello["ask"] == "something unknown" else {"answer": 1}

    def on_message(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        self.told.put(("on_message", message))

    def on_disconnect(self, hello: dict[str, Any]) -> None:
        self.told.put(("on_disconnect", hello))


@pytest.fixture
def owner() -> Listener:
    return Listener()


@pytest.fixture
def server(owner: Listener, tmp_path: Path) -> Iterator[ControlServer]:
    """A control server, named by the file in ``tmp_path``; the JVM's port is its own, so that something answers."""
    with ControlServer(owner, secret=SECRET) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address_of(server).publish(tmp_path)
        yield server
        server.close_all()


def address_of(server: ControlServer, *, secret: str = SECRET) -> DriverAddress:
    return DriverAddress(
        pid=os.getpid(),
        gateway_port=server.port,
        control_port=server.port,
        secret=secret,
        spark_version="4.2.0",
        kernel=release_digest(),
    )


def publish_dead(home: Path) -> None:
    """Leave what a killed driver leaves: a file that names an address where nothing listens."""
    with ControlServer(Listener(), secret=SECRET) as dead:
        address_of(dead).publish(home)


def test_the_file_that_holds_the_secret_is_its_owners_alone(server: ControlServer, tmp_path: Path) -> None:
    assert stat.S_IMODE(address_file(tmp_path).stat().st_mode) == 0o600


def test_a_process_that_ends_is_heard_to_its_end(server: ControlServer, owner: Listener, tmp_path: Path) -> None:
    connection = ControlConnection(tmp_path, ask="attach", group="g")
    connection.send(session_tag="t")
    connection.close()

    hello = {"ask": "attach", "group": "g"}
    told = [owner.told.get(timeout=5) for _ in range(3)]
    assert told == [("on_connect", hello), ("on_message", {"session_tag": "t"}), ("on_disconnect", hello)]


def test_who_does_not_know_the_secret_is_not_heard(server: ControlServer, owner: Listener, tmp_path: Path) -> None:
    address_of(server, secret="a guess").publish(tmp_path)

    with pytest.raises(DriverGone, match="is not the driver"):
        ControlConnection(tmp_path, ask="stop")

    assert owner.told.empty()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"[]\n", b'{"secret": 7}\n', b"\xff\n"])
def test_what_is_no_message_ends_the_conversation(server: ControlServer, owner: Listener, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as stranger:
        stranger.sendall(line)

        assert stranger.recv(100) == b""
    assert owner.told.empty()


def test_a_line_that_does_not_end_is_not_kept(server: ControlServer, owner: Listener) -> None:
    """Pass: the driver hangs up at its limit, long before all is sent."""
    with socket.create_connection(("127.0.0.1", server.port), 5) as stranger, pytest.raises(OSError):
        for _ in range(1000):
            stranger.sendall(b"x" * LONGEST_LINE)
    assert owner.told.empty()


def test_who_connects_and_says_nothing_is_hung_up_on(
    server: ControlServer, owner: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "GREETING_SECONDS", 0.05)

    with socket.create_connection(("127.0.0.1", server.port), 5) as stranger:
        stranger.sendall(b'{"secret"')

        assert stranger.recv(100) == b""
    assert owner.told.empty()


def test_a_refused_process_is_told_that_the_driver_is_about_to_end(server: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(DriverGone, match="about to end"):
        ControlConnection(tmp_path, ask="something unknown")


def test_a_process_notices_that_the_driver_hung_up(server: ControlServer, owner: Listener, tmp_path: Path) -> None:
    with closing(ControlConnection(tmp_path, ask="attach")) as connection:
        assert not connection.is_closed()
        assert not connection.driver_ended()

        server.close_all()

        assert connection.is_closed()
        with pytest.raises(DriverGone, match="ended while this process was attached"):
            for _ in range(2):  # the first may still get into the closed connection
                connection.send(session_tag="t")


def test_without_a_driver_the_error_names_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(DriverGone, match="kdi driver run"):
        ControlConnection(tmp_path, ask="attach")
    publish_dead(tmp_path)
    with pytest.raises(DriverGone, match=f"process {os.getpid()} does not answer"):
        ControlConnection(tmp_path, ask="attach")


@pytest.mark.parametrize("more_connections", [True, False])
def test_a_driver_that_hangs_is_said_to_hang_also_when_the_kernel_takes_no_more_connections_for_it(
    tmp_path: Path, more_connections: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hangs, ExitStack() as waiting:
        port = hangs.getsockname()[1]
        DriverAddress(os.getpid(), port, port, SECRET, pyspark.__version__).publish(tmp_path)
        if not more_connections:
            waiting.enter_context(socket.create_connection(("127.0.0.1", port), 5))

        with only_driver(tmp_path), pytest.raises(DriverHangs, match=f"process {os.getpid()} hangs or is stopped"):
            ControlConnection(tmp_path, within_seconds=0.2, ask="attach")


def test_a_program_with_the_port_of_a_killed_driver_is_not_taken_for_a_driver_that_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        DriverAddress(os.getpid(), port, port, SECRET, pyspark.__version__).publish(tmp_path)

        with pytest.raises(DriverGone, match="is not the driver any more") as gone:
            ControlConnection(tmp_path, within_seconds=0.2, ask="attach")

    assert not isinstance(gone.value, DriverHangs), "nobody shall kill that program"


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"pid": 1, "unknown": 2})])
def test_a_broken_file_is_taken_for_no_driver(tmp_path: Path, content: str) -> None:
    address_file(tmp_path).write_text(content)

    with pytest.raises(DriverGone, match="is not a driver's file"):
        ControlConnection(tmp_path, ask="attach")


def test_the_file_of_a_later_release_is_a_drivers_file_with_more_in_it(tmp_path: Path) -> None:
    here = DriverAddress(1, 2, 3, SECRET, "4.2.0", kernel="k")
    address_file(tmp_path).write_text(json.dumps({**asdict(here), "later": True}))

    assert DriverAddress.read(tmp_path) == here


@pytest.mark.parametrize("before", ["starting", "killed", "ended"])
def test_a_process_waits_for_a_driver_that_starts_or_follows(owner: Listener, tmp_path: Path, before: str) -> None:
    if before != "ended":
        publish_dead(tmp_path)
    else:
        with only_driver(tmp_path):
            pass
    answers: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def attach() -> None:
        with closing(connect_to_driver(tmp_path, ask="attach")) as connection:
            answers.put(connection.answer)

    process = threading.Thread(target=attach)
    with only_driver(tmp_path) if before == "starting" else nullcontext():
        process.start()
        process.join(0.2)  # it would have failed by then
        waited = process.is_alive()
        with (
            nullcontext() if before == "starting" else only_driver(tmp_path),
            ControlServer(owner, secret=SECRET) as server,
        ):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            address_of(server).publish(tmp_path)
            answer = answers.get(timeout=10)
            process.join(10)
            server.close_all()

    assert waited and answer == {"answer": 1}


def test_a_killed_driver_that_none_follows_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_dead(tmp_path)
    monkeypatch.setattr(drivers, "GAP_SECONDS", 0.2)

    with pytest.raises(DriverGone, match="does not answer"):
        connect_to_driver(tmp_path, within_seconds=600, ask="attach")


def test_a_process_does_not_wait_for_ever_for_a_driver_that_does_not_get_ready(tmp_path: Path) -> None:
    with only_driver(tmp_path), pytest.raises(DriverGone):
        connect_to_driver(tmp_path, within_seconds=0.2, ask="attach")


def test_a_driver_with_another_region_of_s3_is_refused_before_anything_is_written(
    server: ControlServer, owner: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kdi_assets.runtime.driver.attach import attach

    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "of this process")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    there = {"endpoint": None, "region": "us-east-1"}
    replace(address_of(server), spark_version=pyspark.__version__, s3=there).publish(tmp_path)

    with pytest.raises(DriverOfOtherS3, match="region of S3 is us-east-1 for the warm driver, and eu-west-1 for this"):
        attach(Settings(tmp_path, "s3://bucket/lake"))

    assert [owner.told.get(timeout=5)[0] for _ in range(2)] == ["on_connect", "on_disconnect"]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [("", "the jars and the kernel of an earlier release"), ("ab12", "the jars and the kernel ab12")],
)
def test_a_driver_with_the_kernel_of_another_release_is_refused(
    server: ControlServer, tmp_path: Path, kernel: str, said: str
) -> None:
    """Purpose: a driver that outlives an upgrade lacks methods, or commits as the release of before did."""
    from kdi_assets.runtime.driver.attach import attach

    replace(address_of(server), spark_version=pyspark.__version__, kernel=kernel).publish(tmp_path)

    with pytest.raises(DriverDiffers, match=f"the warm driver has {said}, and .*\n.*\n.*kdi driver stop"):
        attach(Settings(tmp_path, "/lake", driver="shared"))


@pytest.mark.parametrize("of_before", [{}, {"endpoint": "http://s3", "region": "eu-west-1"}], ids=["no S3", "S3"])
def test_a_driver_that_does_not_know_the_buckets_of_this_process_is_refused(
    tmp_path: Path, of_before: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no lake on S3, or was started before there were lists of buckets."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    here = Settings(tmp_path, "/srv/lake", s3_buckets={"finance": "other"})
    driver = DriverAddress(1, 1, 1, "secret", pyspark.__version__, of_before)

    with pytest.raises(DriverOfOtherS3, match="list of buckets of S3 is not set for the warm driver, and finance"):
        driver.refuse_other_s3(here)

    replace(driver, s3=s3_location(here)).refuse_other_s3(here)
    replace(driver, s3=s3_location(here)).refuse_other_s3(Settings(tmp_path, "/srv/lake"))


def test_without_a_choice_the_warm_driver_of_the_lake_is_used(server: ControlServer, tmp_path: Path) -> None:
    here = Settings(tmp_path, "/lake")
    ours = replace(address_of(server), spark_version=pyspark.__version__, lake="/lake")

    ours.publish(tmp_path)
    assert uses_warm_driver(here) and not uses_warm_driver(replace(here, driver="own"))
    others = (replace(ours, lake="/other"), replace(ours, spark_version="3.5.0"), replace(ours, kernel=""))
    for other in (*others, replace(ours, secret="another")):
        other.publish(tmp_path)
        assert not uses_warm_driver(here) and uses_warm_driver(replace(here, driver="shared"))
    assert not uses_warm_driver(replace(here, home=tmp_path / "no such home"))


def test_to_look_for_a_driver_does_not_keep_one_from_starting(tmp_path: Path) -> None:
    assert not driver_is_there(tmp_path / "no such home") and not driver_is_there(tmp_path)
    assert not [*tmp_path.iterdir()], "a file of root would keep a driver of another user from starting"
    with only_driver(tmp_path):
        assert driver_is_there(tmp_path)
    assert not driver_is_there(tmp_path)

    looking = os.open(tmp_path / "driver.lock", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, [looking]).start()
    with only_driver(tmp_path):
        assert driver_is_there(tmp_path)


@pytest.mark.parametrize("driver", ["auto", "shared"])
def test_a_driver_whose_file_belongs_to_another_user_is_none_of_ours(tmp_path: Path, driver: DriverMode) -> None:
    """Purpose: a driver that root ran in this home leaves files that no other user may read."""
    address_file(tmp_path).mkdir()  # cannot be read either, not even by root

    with pytest.raises(DriverGone, match=r"driver.json cannot be read: .* \(is it another user's\?\)"):
        ControlConnection(tmp_path, ask="attach")

    assert uses_warm_driver(Settings(tmp_path, "/lake", driver=driver)) is (driver == "shared")


@pytest.mark.parametrize("left", [".", "driver.lock", "driver.log"])
def test_a_driver_does_not_start_on_what_another_user_left(tmp_path: Path, left: str) -> None:
    """Purpose: root ran a driver here once; each file of it is an error that names folder and user."""
    home = tmp_path / "home"
    if left == ".":
        home.write_text("no folder")
    else:
        (home / left).mkdir(parents=True)  # cannot be opened, not even by root

    with pytest.raises(FolderNotWritable, match=f"write in {home}: .*\\n.*\\n.*user {whoami()} can"):
        run_driver(Settings(home, "/lake"), report=print)
