"""Errors of announcements. None of them fails a drain: its commits stand, and the next try announces them."""

from __future__ import annotations

from kdi_assets.errors import Terminal, Transient


class NotAnnounced(Transient):
    """The brokers did not take the announcements."""

    stream: str
    topic: str
    detail: str

    what_happened = "{stream}: new versions of the table are not announced in {topic} ({detail})."
    what_is_safe = "the table has all of its commits, and no version is announced in part or twice."
    what_to_run = (
        "kdi drain {stream}   (or wait: the next drain or the next tick of the sensor `follow` announces them)"
    )


class AnotherAnnouncerActive(Transient):
    """Another process began to announce the same table, and the brokers refuse this one since."""

    stream: str
    topic: str

    what_happened = "{stream}: another process announces the table in {topic} at this moment."
    what_is_safe = "each version is announced once, by one of the two."
    what_to_run = "kdi status   (nothing to do: the other process announces what is new)"


class TransactionOpen(Transient):
    """A transaction of another announcer is open in the topic of the bookmarks, and may hide this table's bookmark."""

    stream: str
    topic: str
    seconds: float

    what_happened = (
        "{stream}: a transaction in {topic} is open for more than {seconds:g} s, and may hide the table's bookmark."
    )
    what_is_safe = "nothing was announced."
    what_to_run = (
        "the same command again   (later: the brokers abort the transaction of a process that died, and the next "
        "try reads the bookmark)"
    )


class NotLookedAtInTime(Transient):
    """A look at many announced tables took too long, and this one was not reached."""

    stream: str
    topic: str
    seconds: float

    what_happened = "{stream}: not looked at in time: how far {topic} has the table was not known after {seconds:g} s."
    what_is_safe = "nothing was changed; announcers do not depend on it."
    what_to_run = "kdi status {stream}   (the next look begins with other tables, this one alone)"


class BookmarkUnreadable(Terminal):
    """A message in the topic of the bookmarks is not one that we wrote."""

    stream: str
    topic: str
    detail: str

    what_happened = "{stream}: the newest bookmark of the table in {topic} cannot be read ({detail})."
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = (
        "kdi drain {stream}   (first find who else writes into this topic, and name another topic in `announce`: all "
        "files are announced there again)"
    )


class BookmarksNotKept(Terminal):
    """The topic of the bookmarks deletes old messages: a table that is idle for long would be announced again."""

    stream: str
    topic: str
    policy: str

    what_happened = "{stream}: the topic {topic} keeps bookmarks, and its cleanup.policy is {policy}."
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = (
        "kafka-configs --bootstrap-server HOST:9092 --alter --topic {topic} --add-config "
        "cleanup.policy=compact; then kdi drain {stream}"
    )


class BookmarksScattered(Terminal):
    """The topic of the bookmarks has several partitions, and the newest bookmark of a table can lie in any of them."""

    stream: str
    topic: str
    topic_partitions: int

    what_happened = (
        "{stream}: the topic {topic} keeps bookmarks, and has {topic_partitions} partitions; it must have one."
    )
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = (
        "kdi drain {stream}   (first name another topic in `announce`; or delete this one by kafka-topics "
        "--bootstrap-server HOST:9092 --delete --topic {topic}: all tables that share it are announced again)"
    )


class BookmarkOfNewerRelease(Terminal):
    """A newer release announced the table last."""

    stream: str
    topic: str
    found: object

    what_happened = "{stream}: the bookmark in {topic} has the format {found}, which this release does not know."
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = (
        "pip install --upgrade kdi-assets; then kdi drain {stream}   (with the release that announced the table last)"
    )


class AnnouncedByAnotherTable(Terminal):
    """Another lake announces a table of the same path in the same topic."""

    stream: str
    topic: str
    uri: str
    other_uri: str

    what_happened = "{stream}: {topic} already announces the table {other_uri}, and this one is {uri}."
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = "kdi drain {stream}   (first give `announce` of one of the two documents another topic)"


class AnnouncedTableMissing(Terminal):
    """The table was announced, and is gone."""

    stream: str
    uri: str
    version: int

    what_happened = "{stream}: the table was announced up to version {version}, and there is no table at {uri}."
    what_is_safe = "what was announced stays in the topic; nothing was changed."
    what_to_run = (
        "kdi drain {stream}   (first put the table back; a new table at this place is announced with all its files)"
    )


class FilesAreNotRows(Terminal):
    """The table has a feature by which its files alone are not its rows."""

    stream: str
    uri: str
    feature: str

    what_happened = "{stream}: {uri} has the feature {feature}, and a reader of single files would read other rows."
    what_is_safe = "nothing was announced; the table has all of its commits."
    what_to_run = (
        "kdi sql 'ALTER TABLE delta.`{uri}` DROP FEATURE {feature}'; then kdi drain {stream}   (or remove `announce` "
        "from the document)"
    )
