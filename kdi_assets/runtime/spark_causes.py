"""What made Spark fail: the cause below its exceptions, for all packages that translate them into errors of ours."""

from __future__ import annotations

import os
import re

from kdi_assets.runtime.environment import whoami
from kdi_assets.wording import first_line

NO_PROGRAM = "Cannot run program"
_NO_RIGHT = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system|AccessControlException|Access ?Denied"
    r"|DELTA_CANNOT_CREATE_LOG_PATH|Mkdirs failed to create|Status Code: 403|403 Forbidden"
)
_NO_ROOM = re.compile(
    r"No space left on device|Disk quota exceeded|QuotaExceeded|StorageFull|Status Code: 507|507 Insufficient Storage"
)
"""Of the file system, HDFS and S3: the texts of EACCES, EPERM, EROFS, ENOSPC and EDQUOT, and of statuses of HTTP."""


def violates_constraint(cause: str) -> bool:
    """Whether a root cause is a row that a CHECK or NOT NULL of its Delta table refuses."""
    return "DELTA_VIOLATE_CONSTRAINT" in cause or "DELTA_NOT_NULL_CONSTRAINT" in cause


def storage_needs(cause: str) -> str:
    """What someone must give to the storage before a retry can help; empty if the root cause is another one."""
    if _NO_ROOM.search(cause):
        return "there is room in the storage, and in its quota"
    if "ParentNotDirectoryException" in cause:
        return "the lake is a folder"
    if not _NO_RIGHT.search(cause):
        return ""
    user = os.environ.get("HADOOP_USER_NAME") or whoami()
    whose = "the credentials of AWS" if re.search(r"\bS3\b|s3a?://", cause) else f"user {user}"
    return f"{whose} may list, read, write and delete there"


def root_cause(failed: BaseException) -> str:
    """The first line of the innermost exception, of Java or of a Python worker: the cause, without Spark's wrapping."""
    if is_jvm_loss(failed):
        return "the driver's JVM ended or closed the connection; its own output says why (out of memory?)"
    java = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    # The cause below a program that cannot be run does not name the program.
    while java is not None and java.getCause() is not None and not str(java.getMessage()).startswith(NO_PROGRAM):
        java = java.getCause()
    text = f"{java.getClass().getSimpleName()}: {java.getMessage()}" if java is not None else str(failed)
    _, _, trace = text.partition("Traceback (most recent call last):")
    # Python indents the frames of a trace; what it raised comes after them.
    raised = next((line for line in trace.splitlines() if line and not line[0].isspace()), "")
    return (raised or first_line(text))[:500]


def is_jvm_loss(failed: BaseException) -> bool:
    """py4j raises its network error, its base error without a Java trace, or the refused connection of its retry."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    wordless = type(failed) is Py4JError and "Trace:" not in str(failed)
    return wordless or isinstance(failed, Py4JNetworkError | ConnectionError)
