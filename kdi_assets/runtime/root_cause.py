"""The cause of a failure below all wrapping, of Java or of a Python worker."""

from __future__ import annotations

from kdi_assets.wording import first_line

NO_PROGRAM = "Cannot run program"
_LONGEST = 800
"""Characters; so that the reason of a job that waited in vain, with a long master and namespace, is whole."""
_NAMES_MORE = (NO_PROGRAM, "Call From ", "No Route to Host from ", "End of File Exception between ", "DestHost:")
"""Beginnings of messages whose cause does not name the program, or the server that does not answer.

Source: Hadoop, ``NetUtils.wrapException``.
"""


def root_cause(failed: BaseException) -> str:
    """The first line of the innermost exception, of Java or of a Python worker: the cause, without Spark's wrapping."""
    text = root_text(failed)
    _, _, trace = text.partition("Traceback (most recent call last):")
    # Python indents the frames of a trace; what it raised comes after them.
    raised = next((line for line in trace.splitlines() if line and not line[0].isspace()), "")
    return (raised or first_line(text))[:_LONGEST]


def root_text(failed: BaseException) -> str:
    """All that the innermost exception of Java says, after the name of its class; of Python's, its text."""
    if is_jvm_loss(failed):
        return "the driver's JVM ended or closed the connection; its own output says why (out of memory?)"
    java = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    while java is not None and java.getCause() is not None and not str(java.getMessage()).startswith(_NAMES_MORE):
        java = java.getCause()
    return f"{java.getClass().getSimpleName()}: {java.getMessage()}" if java is not None else str(failed)


def is_jvm_loss(failed: BaseException) -> bool:
    """py4j raises its network error, its base error without a Java trace, or the refused connection of its retry."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    wordless = type(failed) is Py4JError and "Trace:" not in str(failed)
    return wordless or isinstance(failed, Py4JNetworkError | ConnectionError)
