"""Errors of the embedded servers, and of the publishers of generated messages."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.errors import Terminal, Transient


class BrokerDied(Terminal):
    """The broker ended or did not answer; ``tail`` is the end of its log."""

    ending: str
    data: Path
    log: Path
    tail: str

    what_happened = "the broker with its data in {data} {ending}. The end of {log}:\n{tail}"
    what_is_safe = "its data was not changed."
    what_to_run = "kdi broker run --data {data}    (after you fixed the cause)"


class S3ServerDied(Terminal):
    """The embedded S3 ended or did not answer; ``tail`` is the end of its log."""

    ending: str
    data: Path
    log: Path
    tail: str

    what_happened = "the S3 server with its data in {data} {ending}. The end of {log}:\n{tail}"
    what_is_safe = "objects that it keeps were not changed."
    what_to_run = "pip install 'kdi-assets[embedded]'    (it brings the server; else fix the cause and start again)"


class TopicRefused(Terminal):
    """The brokers do not create the topic: its name is not valid, or the right is missing."""

    topic: str
    reason: str

    what_happened = "the brokers do not create the topic {topic!r}: {reason}"
    what_is_safe = "nothing was published."
    what_to_run = "kdi generate --topic NAME   (with a topic that exists or that you may create)"


class DeliveryFailed(Transient):
    """The broker did not acknowledge every message; the others may still be in the topic."""

    topic: str
    acknowledged: int
    failed: int
    reason: str

    what_happened = "{topic}: {failed:,} messages were not acknowledged: {reason}"
    what_is_safe = "{acknowledged:,} messages were acknowledged and are in the topic."
    what_to_run = "kdi generate --topic {topic}    (when the broker works again)"


class KinesisStreamMissing(Terminal):
    """There is no Kinesis stream of this name."""

    stream: str
    endpoint: str
    command: str

    what_happened = "{endpoint} has no Kinesis stream {stream!r}."
    what_is_safe = "nothing was put."
    what_to_run = "{command}    (it creates the stream)"


class KinesisRefused(Terminal):
    """Kinesis refuses the request, or there are no credentials, or no region."""

    stream: str
    put: int
    reason: str
    command: str

    what_happened = "Kinesis does not take records for the stream {stream!r}: {reason}"
    what_is_safe = "{put:,} messages were acknowledged before."
    what_to_run = "{command}    (with region, credentials and rights; kdi kinesis run prints those of a local server)"


class KinesisDidNotAnswer(Transient):
    """Kinesis did not answer, or only with a passing error."""

    stream: str
    put: int
    reason: str
    command: str

    what_happened = "Kinesis does not answer for the stream {stream!r}: {reason}"
    what_is_safe = "{put:,} messages were acknowledged before; others may be in the stream although no answer came."
    what_to_run = "{command}    (when it answers again)"


class RecordsNotPut(Transient):
    """Kinesis refused some records again and again; the others are in the stream."""

    stream: str
    put: int
    refused: int
    reason: str
    command: str

    what_happened = "{stream}: {refused:,} records were refused again and again: {reason}"
    what_is_safe = "{put:,} messages were acknowledged and are in the stream."
    what_to_run = "{command}    (later, or after more shards were added)"
