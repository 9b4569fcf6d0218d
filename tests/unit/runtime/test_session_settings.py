"""Settings of a session that are changed for a while."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from kdi_assets.runtime.spark import changed_settings


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
