"""Tries the lake's storage with a probe: put-if-absent must work, and its clock must be about right."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from urllib.parse import urlsplit

from kdi_assets.delta.errors import PutIfAbsentMissing, StorageRefused, StorageUnanswered
from kdi_assets.delta.object_storage import ObjectStorage, object_storage, race
from kdi_assets.delta.storage import error_line, local_path, table_file_system
from kdi_assets.errors import KdiError
from kdi_assets.operate.doctor.engine import default_file_system
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning, wrong
from kdi_assets.operate.doctor.probe import LocalStorage, NoHardLinks
from kdi_assets.runtime.errors import LakeNotSafe, LakeOfOtherFileSystem
from kdi_assets.settings import SAFE_SCHEMES
from kdi_assets.wording import duration

LARGEST_SKEW_SECONDS = 60.0
Storage = LocalStorage | ObjectStorage


def storage(
    lake: str, *, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time
) -> Iterator[Finding]:
    """Try the lake's storage with a probe, and remove the probe.

    Args:
        environment: Names the folder of Hadoop's configuration.
        clock: This machine's: seconds since 1970.

    Raises:
        StorageRefused, StorageUnanswered: The storage refuses to write or to read, or does not answer.
        Trouble: The bucket is in another region.
        OtherLock: The environment asks for a lock beside conditional put.
    """
    if refused := _refused(lake, environment):
        yield wrong("storage", lake, refused)
        return
    if urlsplit(lake).scheme == "hdfs":
        yield _on_hdfs(lake)
        return
    path = local_path(lake)
    tried = LocalStorage(Path(path)) if path else object_storage(lake)
    if tried is None:
        unknown = Trouble(
            kind="storage unknown",
            happened=f"{lake}: put-if-absent and the clock of this kind of storage cannot be examined.",
            safe="nothing was written there.",
            run="kdi check    (first look whether the storage's documentation has put-if-absent, or conditional put)",
        )
        yield warning("storage", lake, unknown)
        return
    if isinstance(tried, ObjectStorage):
        yield from _region(tried)
    yield from examined(tried, lake, clock=clock)


def _refused(lake: str, environment: Mapping[str, str]) -> KdiError | None:
    """What a driver refuses at its start, by the lake's name alone."""
    if (scheme := urlsplit(lake).scheme) not in SAFE_SCHEMES:
        return LakeNotSafe(lake=lake, scheme=scheme)
    default = default_file_system(environment)
    if not scheme and urlsplit(default).scheme != "file":
        return LakeOfOtherFileSystem(lake=lake, default=default, uri=Path(lake).as_uri())
    return None


def _on_hdfs(lake: str) -> Finding:
    """Whether a file can be created and removed, by the client of HDFS that needs no JVM; it can write empty ones."""
    name = f"kdi-doctor-{uuid.uuid4().hex}"
    try:
        files = table_file_system(lake)
        files.open_output_stream(name).close()
        created = files.get_file_info(name).is_file
        files.delete_file(name)
    except OSError as refused:
        detail = error_line(refused)
        if re.search("Connection refused|SafeModeException", detail):  # nobody's rights or settings are wrong
            raise StorageUnanswered(lake=lake, detail=detail) from refused
        raise StorageRefused(lake=lake, action="create or remove", detail=detail) from refused
    if not created:
        raise StorageRefused(lake=lake, action="show", detail="a file that was just created is not there")
    return fine("storage", lake, "a file was created and removed; HDFS itself renames without overwriting")


def examined(tried: Storage, lake: str, *, clock: Callable[[], float] = time) -> Iterator[Finding]:
    """Both examinations, with one probe."""
    name = f"kdi-doctor-{uuid.uuid4().hex}"
    try:
        before, created, after = clock(), race(tried.create, name), clock()
        yield _put_if_absent(lake, created, held=tried.read(name))
        yield _clock(lake, before, after, written=tried.written_at(name))
    except NoHardLinks:
        yield _no_hard_links(lake)
    finally:
        removal = _removed(tried, lake, name)
    if removal:
        yield removal


def _region(bucket: ObjectStorage) -> Iterator[Finding]:
    there, ours = bucket.regions()
    if there and there != ours:
        raise Trouble(
            kind="wrong region",
            happened=f"{bucket.lake}: the bucket is in {there}, and our settings name {ours}.",
            safe="nothing was written; delta-rs and Spark do not follow a bucket into its region.",
            run=f"export AWS_REGION={there}    (or correct `region` in the profile); then kdi doctor",
        )
    if there:
        yield fine("region", bucket.lake, there)


def _put_if_absent(lake: str, created: Sequence[bytes], *, held: bytes) -> Finding:
    if list(created) != [held]:
        return wrong("storage", lake, PutIfAbsentMissing(lake=lake, created=len(created)))
    return fine("storage", lake, "put-if-absent: of two writers at once, one created the object")


def _no_hard_links(lake: str) -> Finding:
    trouble = Trouble(
        kind="no hard links",
        happened=f"{lake}: the file system has no hard links, by which the drains of two drivers exclude each other.",
        safe="drains of one driver are safe; of two drivers at once, one could overwrite a commit of the other.",
        run="kdi doctor    (first set KDI_LAKE to a folder with hard links or on S3; or run only one driver at a time)",
    )
    return warning("storage", lake, trouble)


def _clock(lake: str, before: float, after: float, *, written: float) -> Finding:
    # The storage wrote between the two times; a difference within them, or by rounding to seconds, is no skew.
    skew = written - after if written > after else min(0.0, written + 1 - before)
    if abs(skew) <= LARGEST_SKEW_SECONDS:
        return fine("clock", lake, f"the storage's is {abs(skew):.1f} s from ours", skew_seconds=skew)
    ahead = "ahead of" if skew > 0 else "behind"
    trouble = Trouble(
        kind="clock skewed",
        happened=f"{lake}: the storage's clock is {duration(abs(skew))} {ahead} this machine's.",
        safe="positions do not depend on clocks; lag, the window of dates, retention of the log and signed "
        "requests do.",
        run="timedatectl    (on this machine and on the storage's: is NTP on?)",
    )
    return warning("clock", lake, trouble, skew_seconds=skew)


def _removed(tried: Storage, lake: str, name: str) -> Finding | None:
    try:
        tried.remove(name)
    except KdiError as refused:
        left = Trouble(
            kind="probe left",
            happened=f"{lake}: the probe {name} could not be removed: {refused.message_parts()[0]}",
            safe="no table was changed; upkeep will not be able to remove expired files either.",
            run=f"kdi doctor    (first remove {lake.rstrip('/')}/{name}, and grant the right to delete)",
        )
        return warning("storage", lake, left, probe=name)
    return None
