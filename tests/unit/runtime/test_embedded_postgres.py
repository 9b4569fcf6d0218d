"""Whether the embedded PostgreSQL runs is known by its file and its process, and asking never fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kdi_assets.follow.serve.postgres.embedded import postgres_runs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """The folder of a process that looks like the server, reached through a symbolic link."""
    (tmp_path / "disk" / "postgres").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    data = tmp_path / "disk" / "postgres"
    command = [sys.executable, "-c", "input()", "-D", str(data.resolve())]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        (data / "postmaster.pid").write_text(f"{process.pid}\n{data}\n")
        yield tmp_path / "home" / "postgres"
        process.kill()


def test_a_server_runs_in_a_folder_behind_a_link_until_its_process_has_another_folder(server: Path) -> None:
    running = postgres_runs(server)
    (server / "postmaster.pid").write_text(f"{os.getpid()}\n")

    assert running
    assert not postgres_runs(server)


@pytest.mark.parametrize("text", ["", "\n", "no number\n", "99999999999999999999\n", "-1\n"])
def test_a_file_without_the_number_of_a_process_is_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "postmaster.pid").write_text(text)

    assert not postgres_runs(tmp_path)


def test_a_file_that_may_not_be_read_is_no_server(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError("postmaster.pid")

    monkeypatch.setattr(Path, "read_text", refuse)

    assert not postgres_runs(server)


def test_a_process_that_may_not_be_asked_is_no_server(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", refuse)

    assert not postgres_runs(server)
