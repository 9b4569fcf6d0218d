"""How a warm driver ends: with its application, stopped, killed, idle, recycled; and what its clients hear of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kdi_assets.runtime.driver.control import ControlConnection, address_file, driver_status
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.settings import Settings
from tests.spark.warm_driver import ENDLESS, KDI, Driver
from tests.waiting import wait_until


@pytest.fixture
def start_driver(settings: Settings, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts one for a test that stops it."""
    drivers: list[Driver] = []

    def start(*options: str) -> Driver:
        drivers.append(Driver(tmp_path / "home", *options, jars=settings.home / "jars"))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.stop()


def end_by_signal(driver: Driver) -> None:
    os.kill(driver.process.pid, signal.SIGTERM)


def kill_owner(driver: Driver) -> None:
    os.kill(driver.process.pid, signal.SIGKILL)


def kill_jvm(driver: Driver) -> None:
    driver.jvm().kill()


def test_a_driver_ends_with_its_application_and_no_client_starts_another_one_in_its_jvm(
    start_driver: Callable[..., Driver],
) -> None:
    """Purpose: a cluster ends an application and leaves the JVM, where Spark would make a context without our settings.
    Procedure: Spark's context in a driver's JVM is stopped, as a cluster does it; use it, and attach again.
    Pass: an error that names the application; a session that is closed; no second one, but the wait for another driver,
    which nobody starts; the driver has ended, and its exit code says that a retry can help.
    """
    driver = start_driver()

    said = driver.answer("""
from kdi_assets.errors import KdiError
from kdi_assets.runtime.spark import is_open
from kdi_assets.runtime.spark_failures import translated

spark = open_session(settings)
spark.sparkContext._jsc.sc().stop()
try:
    with translated(lambda failure: None):
        spark.range(3).count()
except KdiError as ended:
    say(ended.message_parts()[0])
say(is_open(spark))
close_session(spark)
try:
    open_session(settings)
except DriverGone as gone:
    say(gone.reason)
""")

    ended, *others = said.splitlines()
    assert re.fullmatch(r"Spark's application local-\d+ ended on local\[2\]\.", ended)
    assert others == ["False", "none has been started there, or it has ended"]
    wait_until(driver.ended)
    assert driver.process.exit_code() == 75
    assert ended in driver.output()


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [(end_by_signal, 0), (kill_jvm, 75), (kill_owner, -signal.SIGKILL)],
)
def test_however_the_driver_ends_nothing_of_it_stays_and_its_clients_are_told(
    start_driver: Callable[..., Driver], end: Callable[[Driver], None], exit_code: int
) -> None:
    driver = start_driver()
    jvm = driver.jvm()
    body = f"""
from kdi_assets.resources.spark import SparkResource
resource = SparkResource()
try:
    with resource.watched():
        spark = resource.session()
        {ENDLESS}
except DriverGone as gone:
    say(gone.reason, '/', gone.message_parts()[2])
try:
    resource.session()
except DriverGone as gone:
    say(type(gone).__name__)
"""
    client = driver.client(body)
    wait_until(lambda: driver.jobs() == 1)

    end(driver)

    said = client.says()
    assert said.startswith("it ended while this process was attached / ") and "kdi driver run" in said
    wait_until(driver.ended)
    assert driver.process.exit_code() == exit_code
    wait_until(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE)
    assert client.says() == "DriverGone"
    assert address_file(driver.home).exists() == (end is kill_owner)


def test_a_driver_that_hangs_is_not_said_to_have_ended_and_the_command_that_is_named_ends_it(
    start_driver: Callable[..., Driver], tmp_path: Path
) -> None:
    driver = start_driver()
    (tmp_path / "defs").mkdir()
    environment = {**driver.environment, "KDI_DEFS": str(tmp_path / "defs")}
    os.kill(driver.process.pid, signal.SIGSTOP)

    stop, doctor = (
        subprocess.run([KDI, *command], env=environment, capture_output=True, text=True, check=False)
        for command in (["driver", "stop"], ["doctor"])
    )

    hangs = f"the warm driver of {driver.home} does not answer: process {driver.process.pid} hangs or is stopped."
    assert (stop.returncode, hangs in stop.stderr) == (75, True)
    assert hangs in doctor.stdout + doctor.stderr
    os.kill(driver.process.pid, signal.SIGKILL)
    wait_until(driver.ended)


def test_a_driver_that_nobody_needs_ends(start_driver: Callable[..., Driver]) -> None:
    driver = start_driver("--idle-exit", "0.1")

    wait_until(driver.ended)

    assert driver.process.exit_code() == 0
    assert driver.output().splitlines()[-1] == "driver ended: nobody needed it"


def test_a_recycled_driver_takes_a_new_jvm_for_which_clients_wait(start_driver: Callable[..., Driver]) -> None:
    """Overlapping clients do not prevent it: no client is admitted until the attached ones have left."""
    driver = start_driver("--recycle-after", "1")
    first = driver.jvm()
    inside = driver.client("spark = open_session(settings)\nsay('inside')\nthreading.Event().wait()")
    assert inside.says() == "inside"

    assert driver.answer("say(open_session(settings).range(1).count())") == "1"
    wait_until(lambda: driver_status(driver.home)["served"] == 1)
    with pytest.raises(DriverGone, match="about to end"):
        ControlConnection(driver.home, ask="attach", pid=os.getpid(), group="late")
    inside.end()
    wait_until(lambda: not address_file(driver.home).exists())
    next_client = driver.client("spark = open_session(settings)\nsay(spark.range(1).count())\n" + ENDLESS)

    assert next_client.says() == "1"
    assert driver.output().count("driver ended: recycled") == 1
    assert driver.jvm().pid != first.pid
    subprocess.run([KDI, "driver", "stop"], env=driver.environment, check=True)
    assert driver.output().endswith("driver ended: stopped\n")
