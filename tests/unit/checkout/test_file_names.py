"""The names of files in messages: paths, announcements, S3's notifications, and the folders in which files may lie."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kdi_assets.documents.model.announcement import (
    MOST_BYTES,
    AnnouncedFile,
    AnnouncedRange,
    Announcement,
    CoordinateBounds,
    NotAnAnnouncement,
    parse_announcement,
)
from kdi_assets.documents.model.message_format import FileNames, Files, Parquet
from kdi_assets.messages.formats.files.names import NamedFiles, named_files

FILES = (
    AnnouncedFile("/lake/t/date=2026-03-01/a.parquet", "2026-03-01", 5, 900, CoordinateBounds((0, 1), (3, 9))),
    AnnouncedFile("/lake/t/b.parquet"),
)
ANNOUNCED = Announcement(
    table="bronze/t",
    table_id="an id",
    uri="/lake/t",
    version=7,
    previous_version=5,
    sequence=3,
    kind="changes",
    operation="WRITE",
    commit="drain",
    attempt_id="an attempt",
    ranges=(AnnouncedRange("t", 0, 3, 10),),
    added=FILES,
)


ANYWHERE = ("/", "s3://lake")


def named(value: bytes | str, names: FileNames = "paths", *root: str) -> NamedFiles:
    format_ = Files(Parquet(), names, root or ANYWHERE)
    return named_files(value.encode() if isinstance(value, str) else value, format_)


def event(key: str, name: str = "ObjectCreated:Put") -> dict[str, Any]:
    return {"eventName": name, "s3": {"bucket": {"name": "lake"}, "object": {"key": key, "size": 1}}}


def s3(*records: dict[str, Any]) -> str:
    return json.dumps({"Records": records})


@pytest.mark.parametrize(
    ("value", "uris"),
    [
        ("/a/b.parquet", ["/a/b.parquet"]),
        ("/a/b.parquet\r\n\n s3://lake/x y%20z.parquet \n", ["/a/b.parquet", "s3://lake/x y%20z.parquet"]),
        ("s3a://lake/a/b", ["s3://lake/a/b"]),
        ("file:///a/b%20c", ["/a/b c"]),
        ("file:/a/b", ["/a/b"]),
        ("//a/./b", ["/a/b"]),
        ("/a/b\n/a/b", ["/a/b", "/a/b"]),
    ],
)
def test_paths_are_read_line_by_line_in_one_spelling(value: str, uris: list[str]) -> None:
    assert named(value) == NamedFiles(tuple(uris))


@pytest.mark.parametrize(
    ("value", "root", "expected"),
    [
        ("/lake/t/a", ("/lake",), "/lake/t/a"),
        ("t/a", ("/lake",), "/lake/t/a"),
        ("t/a", ("s3://lake/raw/",), "s3://lake/raw/t/a"),
        ("s3a://lake/raw/a", ("s3://lake/raw",), "s3://lake/raw/a"),
        ("s3://lake/raw/a", ("/lake", "s3a://lake/raw"), "s3://lake/raw/a"),
        ("/lakeside/a", ("/lake",), None),
        ("/lake/../etc/passwd", ("/lake",), None),
        ("file:///lake/%2e%2e/etc/passwd", ("/lake",), None),
        ("../etc/passwd", ("/lake",), None),
        ("s3://lake/rawer/a", ("s3://lake/raw",), None),
        ("s3://other/raw/a", ("s3://lake/raw",), None),
        ("s3://lake/raw/../secret", ("s3://lake/raw",), None),
        ("/etc/passwd", ("s3://lake/raw",), None),
    ],
)
def test_only_files_in_the_given_folders_are_read(value: str, root: tuple[str, ...], expected: str | None) -> None:
    found = named(value, "paths", *root)

    assert found.uris == (() if expected is None else (expected,))
    assert found.reason == ("outside_root" if expected is None else "")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a/b", "no_address"),
        ("https://host/a", "no_address"),
        ("s3://lake", "no_address"),
        ("file://other-host/a", "no_address"),
        ("/a\0b", "outside_root"),
        (" \n", "names_no_file"),
        (b"/a\xff", "invalid_utf8"),
        ("/good/a\nb", "no_address"),
        ("/lake/_metadata", "no_address"),
        ("s3://lake/.a.parquet", "no_address"),
        ("/lake/a.parquet._COPYING_", "no_address"),
        ("s3://lake/a//b.parquet", "no_address"),
        ("s3://lake/a/./b.parquet", "no_address"),
    ],
)
def test_a_message_with_a_name_that_leads_nowhere_is_a_dead_letter_as_a_whole(value: bytes | str, reason: str) -> None:
    found = named(value)

    assert (found.uris, found.reason, found.names_nothing) == ((), reason, False)


NO_NAMES = [
    ("s3_events", s3(event("a\ud800.parquet")), "no_address"),
    ("s3_events", "[" * 100_000, "not_an_s3_event"),
    ("announcements", "[" * 100_000, "not_an_announcement"),
    ("announcements", ANNOUNCED.to_json().replace(FILES[0].path, r"/a\ud800"), "no_address"),
    ("announcements", ANNOUNCED.to_json().replace('"changes"', r'"\ud800"'), "not_an_announcement"),
    ("announcements", json.dumps({**json.loads(ANNOUNCED.to_json()), "added": [5]}), "not_an_announcement"),
    ("announcements", json.dumps({**json.loads(ANNOUNCED.to_json()), "ranges": 5}), "not_an_announcement"),
]


@pytest.mark.parametrize(("names", "value", "reason"), NO_NAMES, ids=range(len(NO_NAMES)))
def test_json_that_no_name_can_come_from_is_a_dead_letter_that_can_be_written(
    names: FileNames, value: str, reason: str
) -> None:
    found = named(value, names)

    assert (found.uris, found.reason) == ((), reason)
    assert found.detail.encode()


def test_bounds_of_offsets_that_are_no_numbers_are_of_no_announcement() -> None:
    written = json.loads(ANNOUNCED.to_json())
    written["added"][0]["offsets"] = {"partition": [0, 0], "offset": [0, float("inf")]}

    assert named(json.dumps(written), "announcements").reason == "not_an_announcement"


def test_an_announcement_survives_its_json() -> None:
    assert parse_announcement(ANNOUNCED.to_json()) == ANNOUNCED
    assert named(ANNOUNCED.to_json(), "announcements").uris == tuple(file.path for file in FILES)


def test_fields_of_a_later_release_are_ignored_and_later_formats_refused() -> None:
    written = json.loads(ANNOUNCED.to_json())
    written["added"][0]["checksum"] = written["signed_by"] = "new"

    assert parse_announcement(json.dumps(written)) == ANNOUNCED
    with pytest.raises(NotAnAnnouncement, match="this release reads 1"):
        parse_announcement(json.dumps({**written, "kdi_announcement": 2}))


def test_many_files_are_announced_in_parts_that_brokers_take() -> None:
    many = [AnnouncedFile(f"/lake/{'x' * 200}/{n}.parquet", "2026-03-01", n, n) for n in range(9000)]
    whole = replace(ANNOUNCED, added=tuple(many[:8000]), removed=tuple(many[8000:]))

    parts = whole.in_parts()

    assert [part.part for part in parts] == list(range(1, len(parts) + 1)) and len(parts) > 3
    assert {part.parts for part in parts} == {len(parts)}
    assert [f for part in parts for f in (*part.added, *part.removed)] == many
    assert max(len(part.to_json()) for part in parts) < 1.2 * MOST_BYTES


@pytest.mark.parametrize(
    ("change", "reason", "nothing"),
    [
        ({"data_change": False, "only_adds": False, "removed": FILES}, "", True),
        ({"added": (), "removed": FILES, "only_adds": False}, "replaces_rows", False),
        ({"operation": "RESTORE"}, "replaces_rows", False),
        ({"removed": FILES, "only_adds": False}, "replaces_rows", False),
        ({"kind": "listing", "only_adds": False}, "listed_again", False),
        ({"kind": "listing", "sequence": 1}, "", False),
    ],
)
def test_only_announcements_that_add_rows_are_read(change: dict[str, Any], reason: str, nothing: bool) -> None:
    found = named(replace(ANNOUNCED, **change).to_json(), "announcements")

    assert (found.reason, found.names_nothing) == (reason, nothing)


@pytest.mark.parametrize("value", ["", "{}", "[]", "null", '{"kdi_announcement": 1}', '{"kdi_announcement": "x"}'])
def test_what_is_no_announcement_is_a_dead_letter(value: str) -> None:
    assert named(value, "announcements").reason == "not_an_announcement"


@pytest.mark.parametrize(
    ("value", "uris"),
    [
        (s3(event("raw/a.parquet")), ["s3://lake/raw/a.parquet"]),
        (s3(event("raw/day%3D2026-03-01/a+b%2Bc%25.parquet")), ["s3://lake/raw/day=2026-03-01/a b+c%.parquet"]),
        (s3(event("Z%C3%BCrich.parquet", "s3:ObjectCreated:CompleteMultipartUpload")), ["s3://lake/Zürich.parquet"]),
        (s3(event("a"), event("b", "ObjectRemoved:Delete"), event("c/")), ["s3://lake/a"]),
        (s3(event("a", "ObjectRemoved:Delete")), []),
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent"}), []),
    ],
)
def test_notifications_of_s3_name_the_objects_that_were_created(value: str, uris: list[str]) -> None:
    found = named(value, "s3_events")

    assert (found.uris, found.reason, found.names_nothing) == (tuple(uris), "", not uris)


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"Records": [{}]}', '{"Records": 1}', s3(event("%FF"))])
def test_what_is_no_notification_is_a_dead_letter(value: str) -> None:
    assert named(value, "s3_events").reason == "not_an_s3_event"


def test_notifications_outside_of_the_folder_are_dead_letters() -> None:
    assert named(s3(event("raw/a"), event("b")), "s3_events", "s3://lake/raw").reason == "outside_root"
