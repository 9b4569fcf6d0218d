"""Examinations side by side: none waits for another, none takes longer than its time, none ends another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from kdi_assets.doctor.finding import Finding, Trouble, Unanswered, wrong
from kdi_assets.errors import KdiError
from kdi_assets.runtime.threads import begin


@dataclass(frozen=True, slots=True)
class Examination:
    """What is to be looked at, and how; ``look`` may also raise a refusal, which is then what it found."""

    name: str
    of: str
    look: Callable[[], Iterable[Finding]]


def side_by_side(examinations: Sequence[Examination], *, seconds: float) -> list[Finding]:
    """Carry the examinations out, all at once.

    Args:
        seconds: How long to wait for the slowest; what has not ended by then is left behind.

    Returns:
        All findings, in the order of the examinations.
    """
    begun = [(examination, _begin(examination)) for examination in examinations]
    wait([answer for _, answer in begun], timeout=seconds)
    return [finding for examination, answer in begun for finding in _found(examination, answer, seconds)]


def _begin(examination: Examination) -> Future[list[Finding]]:
    return begin(lambda: list(examination.look()), name=f"{examination.name} {examination.of}")


def _found(examination: Examination, answer: Future[list[Finding]], seconds: float) -> list[Finding]:
    name, of = examination.name, examination.of
    if not answer.done():
        hangs = Unanswered(
            kind="no answer in time",
            happened=f"{name} of {of}: no answer within {seconds:g} s.",
            safe="the other examinations are not touched by it; nothing was read and nothing was written.",
            run=f"kdi doctor    (once more; if it repeats, what hangs is {of})",
        )
        return [wrong(name, of, hangs)]
    failure = answer.exception()
    if failure is None:
        return answer.result()
    if not isinstance(failure, KdiError):
        failure = Trouble(
            kind="examination failed",
            happened=f"{name} of {of} could not be examined: {type(failure).__name__}: {failure}",
            safe="the other examinations are not touched by it.",
            run="kdi status    (if that fails as well, its traceback says where)",
        )
    return [wrong(name, of, failure)]
