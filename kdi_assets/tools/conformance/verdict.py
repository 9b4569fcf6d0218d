"""The verdict of a scenario: one phrase for what the writer did, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdi_assets.tools.conformance.messages import Sent
from kdi_assets.tools.conformance.oracle import WriterAccount
from kdi_assets.tools.conformance.play import Played
from kdi_assets.tools.conformance.scenario import Scenario

RIGHT, REFUSED, NOT_JUDGED = "right", "refused loudly", "not judged"
STOPPED, LOST, SILENT, DOUBLED, INVENTED = "stopped", "lost", "silent loss", "doubled", "invented"


@dataclass(frozen=True)
class WriterVerdict:
    """What a writer did in a scenario.

    Attributes:
        words: One or several of the words above; of several, the worst first.
        passed: Whether it is ``right``, or ``refused loudly`` where the scenario allows that.
        starts, kills: How often it was started, and how often killed while it ran.
        counts: ``messages``, and how many of them were ``kept``; where there are any, ``lost``, ``waiting`` (the writer
            stands still), ``changed``, ``doubled``, ``invented``, ``expired`` (deleted by retention before they were
            read), ``compacted`` (removed by Kafka before they were read).
        errors: The different errors that the writer ended with.
        decisions: What was decided about them.
        first: The first differences, in words.
    """

    words: tuple[str, ...]
    passed: bool
    counts: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    kills: int = 0
    errors: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


def judge(scenario: Scenario, played: Played) -> WriterVerdict:
    """The verdict.

    * ``right``: every message is there as it must be, once, and nothing else.
    * ``refused loudly``: the scenario leaves nothing that is surely right, and the writer ended with an error; what is
      in its tables is right, and after the decision that its documentation names, if there is one, so is the rest.
    * ``stopped``: the same where a right answer exists: it ends with an error at every start, and messages wait; its
      tables may have too much.
    * ``lost``: messages are not there, or changed; the writer ended with an error, and went on later.
    * ``silent loss``: the same without any error.
    * ``doubled``, ``invented``: rows or dead letters that must not be there.
    * ``not judged``: messages were missing, and the writer still worked when ``start_seconds`` had passed.
    """
    if (account := played.account) is None:
        raise ValueError("the scenario was not played to its end")
    words = _words(scenario, played, account)
    counts = {
        "messages": account.messages,
        "kept": account.kept,
        "waiting" if STOPPED in words or (REFUSED in words and played.stands) else "lost": len(account.lost),
        "changed": len(account.changed),
        "doubled": len(account.doubled),
        "invented": len(account.invented),
        "expired": len(_expired(played, account)),
        "compacted": len(account.unreachable) - len(_expired(played, account)),
    }
    return WriterVerdict(
        words,
        passed=words in ((RIGHT,), (REFUSED,)),
        counts={name: count for name, count in counts.items() if count or name in ("messages", "kept")},
        starts=played.starts,
        kills=played.kills,
        errors=tuple(dict.fromkeys([*played.errors, *played.other_errors])),
        decisions=tuple(dict.fromkeys(played.decisions)),
        first=account.first,
    )


def _expired(played: Played, account: WriterAccount) -> list[Sent]:
    """Messages that cannot be had any more; a writer must say so. What compaction removes is no loss."""
    return [message for message in account.unreachable if message in played.expired]


def _words(scenario: Scenario, played: Played, account: WriterAccount) -> tuple[str, ...]:
    gone, said = _expired(played, account), played.errors[played.errors_before :]
    missing = bool(account.lost) or (bool(gone) and not said)
    wrong = bool(account.changed or account.doubled or account.invented)
    if not wrong and (played.stands or not missing):
        if scenario.may_refuse and (played.stands or played.decisions or gone):
            return (REFUSED,)
        return (STOPPED,) if played.stands else (RIGHT,)
    if played.unfinished and missing and not wrong:
        return (NOT_JUDGED,)
    if played.stands and missing and not account.changed:
        words = [STOPPED]
    else:
        words = [LOST if said else SILENT] if missing or account.changed else []
    words += [DOUBLED] if account.doubled else []
    words += [INVENTED] if account.invented else []
    return tuple(words)
