"""What storage answers to whoever uses Spark: a missing right or room is for a person, not for a retry."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from kdi_assets.errors import Terminal, Transient
from kdi_assets.follow.refine.spark_errors import spark_failures as of_refinement
from kdi_assets.follow.serve.postgres.staging import reading_failures as of_serving
from kdi_assets.operate.upkeep.errors import spark_failures as of_upkeep
from kdi_assets.streams.spark_errors import spark_failures as of_drain
from tests.judged import stream_of

FAILURES: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    lambda: of_drain(stream_of("id int"), "writing files"),
    lambda: of_refinement("silver/t", "writing rows"),
    lambda: of_upkeep("bronze/t", "VACUUM"),
    lambda: of_serving("postgres/public/t"),
)
S3 = "AmazonS3Exception on s3a://lake/t: {} (Service: S3, Status Code: {}, Request ID: 403507)"


@pytest.mark.parametrize("failures", FAILURES, ids=["drain", "refinement", "upkeep", "serving"])
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
