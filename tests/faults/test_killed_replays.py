"""Dead letters of a wrong definition come back while drains go on, and replays are killed again and again."""

from __future__ import annotations

import signal

import pytest

from kdi_assets.ledger.history import entries
from kdi_assets.replay.replay_letters import replay_letters
from tests.condemned import states, with_letters
from tests.conftest import DrivenFactory
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import COMMIT_CHECKED

scenario = pytest.mark.scenario
KILLED = -signal.SIGKILL


@scenario("killed after files are written", "killed between dead letters and commit", "killed during the commit")
def test_letters_of_a_wrong_definition_all_come_back_whatever_is_killed(
    driven: DrivenFactory, doomed: DoomedFactory
) -> None:
    """Purpose: what a wrong definition has condemned must come back whole, while the stream goes on and processes die.
    Procedure: a definition that condemns everything; drain; mend it. At each point in turn, a replay in a process of
    its own, attached to the warm driver, is killed (SIGKILL), and a drain follows; one is killed right behind its
    commit; replay once more.
    Pass: none left a version but the last, which left one; every offset exactly once; every letter is resolved, each
    counted as returned once; the audit is complete.
    """
    web = with_letters(driven, 60, bad=0.0)

    for seed, point in enumerate(("messages read", "files written", "letters written", COMMIT_CHECKED), 1):
        begun = web.version()
        assert doomed(web, point, signal.SIGKILL, act=replay_letters).exit_code() == KILLED, point
        assert web.version() == begun, point
        web.produce(20, seed=seed)
        web.drain()
    last = doomed(web, "commit sent", signal.SIGKILL, act=replay_letters).exit_code()
    again = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert (last, again.messages, again.commit) == (KILLED, 0, None)
    web.assert_each_offset_once(web.publisher.flush())
    assert states(web) == {"resolved": 60}
    assert sum(sum(e.returned.values()) for e in entries(web.uri, web.stream.app_id)) == 60
    audit = web.audit()
    assert (audit.complete, audit.dead_letters) == (True, 0), audit.notes
