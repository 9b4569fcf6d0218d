"""Examinations side by side: none waits for another, none takes longer than its time, none ends another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from kdi_assets.doctor.finding import Finding, wrong
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.runtime.threads import begin


@dataclass(frozen=True, slots=True)
class Examination:
    """What is to be looked at, and how; ``look`` may also raise a refusal, which is then what it found."""

    name: str
    of: str
    look: Callable[[], Iterable[Finding]]


class NoAnswerInTime(Transient):
    """An examination did not end."""

    examination: str
    of: str
    seconds: float

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.examination} of {self.of}: no answer within {self.seconds:g} s.",
            "the other examinations are not touched by it; nothing was read and nothing was written.",
            f"kdi doctor    (once more; if it repeats, what hangs is {self.of})",
        )


class ExaminationFailed(Terminal):
    """An examination ended in an error that nobody translated."""

    examination: str
    of: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.examination} of {self.of} could not be examined: {self.detail}",
            "the other examinations are not touched by it.",
            "kdi status    (if that fails as well, its traceback says where)",
        )


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
        return [wrong(name, of, NoAnswerInTime(examination=name, of=of, seconds=seconds))]
    failure = answer.exception()
    if failure is None:
        return answer.result()
    if not isinstance(failure, KdiError):
        failure = ExaminationFailed(examination=name, of=of, detail=f"{type(failure).__name__}: {failure}")
    return [wrong(name, of, failure)]
