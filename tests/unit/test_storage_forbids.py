"""What storage answers to a drain and to a refinement: a missing right or room is for a person, not for a retry."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from kdi_assets.drain import spark_errors
from kdi_assets.errors import Terminal, Transient
from kdi_assets.refine import spark_failures
from tests.judged import stream_of

FAILURES: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    lambda: spark_errors.spark_failures(stream_of("id int"), "writing files"),
    lambda: spark_failures.spark_failures("silver/t", "writing rows"),
)
S3 = "AmazonS3Exception on s3a://lake/t: {} (Service: S3, Status Code: {}, Request ID: 403507)"


@pytest.mark.parametrize("failures", FAILURES, ids=["drain", "refinement"])
@pytest.mark.parametrize(
    ("failed", "needs"),
    [
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/lake/t"), "may list, read, write and delete"),
        (OSError(errno.EPERM, os.strerror(errno.EPERM), "/lake/t"), "may list, read, write and delete"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/lake/t"), "may list, read, write and delete"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/lake/t"), "room in the storage"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/lake/t"), "room in the storage"),
        (OSError(S3.format("Access Denied", 403)), "the credentials of AWS may"),
        (OSError(S3.format("Storage backend has reached its minimum", 507)), "room in the storage"),
        (OSError(errno.EIO, os.strerror(errno.EIO), "/lake/t"), ""),
        (OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), ""),
        (OSError(S3.format("Slow Down", 503)), ""),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, OSError) else None,
)
def test_a_missing_right_or_room_is_terminal_and_names_what_is_needed(
    failures: Callable[[], AbstractContextManager[None]], failed: OSError, needs: str
) -> None:
    with pytest.raises(Terminal if needs else Transient) as refused, failures():
        raise failed

    assert str(failed.args[-1])[:30] in refused.value.message_parts()[0]
    assert needs in refused.value.message_parts()[2]
