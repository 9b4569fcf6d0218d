"""Settings of a session that are changed for a while, and of the JVM that it starts."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kdi_assets.runtime import spark
from kdi_assets.runtime.spark import SMALL_DRAIN, changed_settings
from kdi_assets.runtime.spark_jvm import PATIENT_COMPILER, QUICK_COMPILER
from kdi_assets.settings import Settings


class Session:
    """A session's settings; the rest of Spark takes no part."""

    def __init__(self, **settings: str) -> None:
        self.settings, self.conf = settings, self

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


@pytest.mark.parametrize("fails", [False, True])
def test_a_users_setting_comes_back_after_the_body_even_if_it_fails(fails: bool) -> None:
    session: Any = Session(attempts="7")

    with pytest.raises(KeyError) if fails else nullcontext(), changed_settings(session, {"attempts": "0", "bin": "64"}):
        during = dict(session.settings)
        if fails:
            raise KeyError

    assert during == {"attempts": "0", "bin": "64"}
    assert session.settings == {"attempts": "7"}


@pytest.mark.parametrize(
    ("only_messages", "compiler"),
    [(0, QUICK_COMPILER), (SMALL_DRAIN, QUICK_COMPILER), (SMALL_DRAIN + 1, PATIENT_COMPILER), (None, PATIENT_COMPILER)],
)
def test_a_jvm_for_few_messages_does_without_the_optimizing_compiler(
    only_messages: int | None, compiler: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(Exception):
        pass

    def start(settings: Settings, *, compiler: tuple[str, ...], **options: Any) -> NoReturn:
        raise Started(compiler)

    monkeypatch.setattr(spark, "_open_root", lambda settings: None)
    monkeypatch.setattr(spark, "start_spark", start)

    with pytest.raises(Started) as started:
        spark.open_session(Settings(tmp_path, str(tmp_path), driver="own"), only_messages=only_messages)
    assert started.value.args == (compiler,)
