"""What YARN says about an application that did not start becomes an error with the container's own reason."""

from __future__ import annotations

import pytest

from kdi_assets.errors import Terminal, Transient
from kdi_assets.runtime.yarn import in_brief, refusal

FAILED = "Application application_17_0001 failed 2 times due to AM Container for appattempt_17_0001_000002 exited with"
ENDED = """
Failing this attempt.Diagnostics: [2026-11-29 12:40:09.010]Exception from container-launch.
Container id: container_17_0001_02_000001
Exit code: 1

[2026-11-29 12:40:09.012]Container exited with a non-zero exit code 1. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
{}

For more detailed output, check the application tracking page: http://rm:8088/cluster/app/x Then click on links to logs.
. Failing the application."""
NO_CLASS = "Error: Could not find or load main class org.apache.spark.deploy.yarn.ExecutorLauncher"
CAUSED = f"{NO_CLASS}\nCaused by: java.lang.ClassNotFoundException: org.apache.spark.deploy.yarn.ExecutorLauncher"
NO_JAVA = "/bin/bash: line 1: /no/java/bin/java: No such file or directory"
TOO_LARGE = "Container [pid=7,containerID=container_17] is running 9 B beyond the 'PHYSICAL' memory limit."
SETTINGS = {"spark.yarn.archive": "hdfs:///kdi/jars.zip", "spark.yarn.queue": "q"}


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (CAUSED, NO_CLASS),
        (NO_JAVA, "/no/java/bin/java: No such file or directory"),
        ('Exception in thread "main" java.lang.OutOfMemoryError: heap\n\tat x', "java.lang.OutOfMemoryError: heap"),
        (f"[2026-11-29 12:40:09.012]{TOO_LARGE}", TOO_LARGE),
    ],
)
def test_the_first_error_of_the_container_follows_what_yarn_says(stderr: str, said: str) -> None:
    assert in_brief(f"{FAILED}  exitCode: 1{ENDED.format(stderr)}") == f"{FAILED}  exitCode: 1: {said}"


def test_without_an_error_of_a_container_it_is_the_first_line() -> None:
    assert in_brief(f"{FAILED}  exitCode: 0{ENDED.format('')}") == f"{FAILED}  exitCode: 0"


@pytest.mark.parametrize(
    ("said", "needs"),
    [
        ("SparkException: Failed to submit: application_1 submitted by user a to unknown queue: q", "spark.yarn.queue"),
        ("FileNotFoundException: File does not exist: hdfs://nn:8020/kdi/jars.zip", "spark.yarn.archive"),
        ("FileNotFoundException: File does not exist: hdfs://nn:8020/kdi", "spark.yarn.archive"),
        (f"SparkException: {FAILED}  exitCode: 1{ENDED.format(CAUSED)}", "spark.yarn.jars"),
        (f"SparkException: {FAILED}  exitCode: 127{ENDED.format(NO_JAVA)}", "JAVA_HOME"),
    ],
)
def test_what_the_next_try_would_meet_again_is_terminal_and_names_the_setting(said: str, needs: str) -> None:
    error = refusal("q", said, SETTINGS)

    assert isinstance(error, Terminal)
    assert needs in error.message_parts()[2]


@pytest.mark.parametrize(
    "said",
    [
        "SafeModeException: Cannot create directory /user/a/.sparkStaging/x. Name node is in safe mode.",
        "FileNotFoundException: File does not exist: hdfs://nn:8020/kd",
        "FileNotFoundException: File does not exist: hdfs://nn:8020/user/a/.sparkStaging/x/__spark_conf__.zip",
        "SparkException: Application application_1 was killed by user a",
    ],
)
def test_what_may_go_away_by_itself_is_transient(said: str) -> None:
    error = refusal("q", said, SETTINGS)

    assert isinstance(error, Transient)
    assert said.partition(": ")[2] in error.message_parts()[0]


@pytest.mark.parametrize(
    "said",
    [
        "IllegalArgumentException: Required executor memory (9216 MB), overhead (921 MB), is "
        "above the max threshold (6144 MB) of this cluster!",
        "InvalidResourceRequestException: Invalid resource request! Cannot allocate containers as requested resource "
        "is greater than maximum allowed allocation.",
    ],
)
def test_a_container_that_is_too_large_may_fit_once_more_machines_run(said: str) -> None:
    """Purpose: the largest container that YARN offers is that of the machines that run at the moment."""
    error = refusal("q", said, SETTINGS)

    assert isinstance(error, Transient)
    assert said in error.message_parts()[0] and "spark.executor.memory" in error.message_parts()[0]
