"""Drains of streams whose producers put several user records into one record, as the Kinesis Producer Library does."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from google.protobuf.message import DecodeError
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis import source
from kdi_assets.messages.kinesis.capture import captured
from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.errors import SeamOpen
from kdi_assets.messages.kinesis.reader import ShardStart
from kdi_assets.messages.kinesis.shards import ListedShard, list_shards
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.drain.errors import UnexplainedGap
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.tools.local.kinesis.aggregates import to_aggregate
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import Crash, Put, crash_at
from tests.kinesis.endpoint import HASH_KEYS, kinesis_client
from tests.kinesis.kpl import MAGIC, UserRecord, aggregate_of, aggregated, hash_key, parse_aggregate, sealed
from tests.oracle import read_back

ALL = (date(2020, 1, 1), date(2040, 1, 1))
KEY: dict[str, Any] = {"columns": {"key": "kinesis.partition_key"}}


class Producer(Put):
    """Puts user records with ids of their own; ``ids`` are those that are put."""

    def users(self, count: int, *, shard: int | None = None, of: int = 2) -> list[UserRecord]:
        """User records whose keys belong to one of ``of`` equal shards, or to any."""
        found: list[UserRecord] = []
        while len(found) < count:
            number = len(self.ids)
            self.ids.append(number)
            keys = (f"key {number} {n}" for n in range(1000))
            key = next(key for key in keys if shard is None or hash_key(key.encode()) * of // HASH_KEYS == shard)
            found.append(UserRecord(key, json.dumps({"id": number}).encode()))
        return found

    def send(self, *data: bytes, hash_key: int = 0) -> None:
        """Put records into the shard of a hash key."""
        records = [{"Data": each, "PartitionKey": "any", "ExplicitHashKey": str(hash_key)} for each in data]
        assert self.client.put_records(StreamName="orders", Records=records)["FailedRecordCount"] == 0
        self.server.advance(1)

    def messages(self) -> list[int]:
        """How many each drain committed."""
        return [entry.messages for entry in self.entries() if entry.kind == "drain"]

    def rows(self) -> list[Any]:
        """By id."""
        return sorted(read_back(self.stream, self.lake).rows, key=lambda row: row["id"])

    def letters(self) -> Counter[tuple[str, bytes]]:
        """Reason and value of the dead letters that count."""
        return Counter((x["reason"], x["value"]) for x in read_back(self.stream, self.lake).dead_letters)


@pytest.mark.scenario("Kinesis: records of several user records, large ones")
def test_each_user_record_is_a_row_once_with_its_own_key(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Purpose: an aggregate takes as many numbers as it has user records, and no position lies inside of one.
    Procedure: put aggregates, one of them by the generator, and records between them; end a drain before its commit;
    drain; put more, expire an iterator, and drain.
    Pass: each id is a row once, with the key of its user record; positions, spans and the audit count user records.
    """
    orders = Producer(spark, lake, server, shards=1, **KEY)
    users = [orders.users(n) for n in (3, 1, 40)]
    of_generator = [(user.key, user.data) for user in orders.users(7)]
    alone = orders.users(2)
    orders.send(aggregate_of(*users[0]), alone[0].data, aggregate_of(*users[1]), to_aggregate(of_generator))
    orders.send(alone[1].data, aggregate_of(*users[2]))
    with pytest.raises(Crash):
        orders.drain(crash_at("accounted for"))
    assert (orders.drain(), orders.drain()) == (1, 0)
    assert orders.drained() == orders.ids

    more = [aggregate_of(*orders.users(5)) for _ in range(20)]
    orders.send(*more)
    server.order(Fault("GetRecords", skip=2, code="ExpiredIteratorException"))
    orders.drain()

    assert orders.drained() == orders.ids
    keys = {row["id"]: row["key"] for row in read_back(orders.stream, lake).rows}
    assert all(keys[json.loads(user.data)["id"]] == user.key for some in users for user in some)
    last = orders.entries()[-1]
    assert last.positions == {TopicPartition("orders", 0): len(orders.ids)}
    assert [span.records for entry in orders.entries() for span in entry.spans.values()] == orders.messages()
    (mark,) = last.bookmarks.values()
    assert mark.digest == digest_of(b"any", more[-1]), "that of the whole record, as the second client sees it"
    assert orders.audit().complete


def test_sequence_numbers_are_written_without_a_dictionary(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: to build one, and to throw it away, takes more CPU than all other columns of a row.
    Procedure: drain an aggregate; its user records have one sequence number, and Parquet would keep a dictionary.
    """
    orders = Producer(spark, lake, server, shards=1)
    orders.send(aggregate_of(*orders.users(40)))

    orders.drain()

    (file,) = DeltaTable(orders.stream.table_uri(lake)).file_uris()
    written = pq.read_metadata(file).row_group(0)
    columns = {c["path_in_schema"]: c for c in (written.column(n).to_dict() for n in range(written.num_columns))}
    assert not columns["kinesis.sequence_number"]["has_dictionary_page"]
    assert columns["kinesis.shard_id"]["has_dictionary_page"]


@pytest.mark.scenario("Kinesis: records of several user records, large ones")
@pytest.mark.parametrize(
    ("limit", "messages"),
    [
        ({"max_records": 4}, [6, 6, 3]),
        ({"max_records": 6}, [6, 6, 3]),
        ({"max_records": 1}, [3] * 5),
        ({"max_bytes": 40_000}, [6, 9]),
    ],
)
def test_a_plan_ends_behind_an_aggregate(
    spark: SparkSession, lake: str, server: KinesisServer, limit: dict[str, Any], messages: list[int]
) -> None:
    """Procedure: five aggregates of three; 10 kB are expected of each message of a stream without drains."""
    orders = Producer(spark, lake, server, shards=1, **limit)
    orders.send(*(aggregate_of(*orders.users(3)) for _ in range(5)))

    orders.drain()

    assert orders.drained() == orders.ids
    assert orders.messages() == messages


@pytest.mark.scenario("Kinesis: records of several user records, large ones")
def test_user_records_of_another_shard_are_dead_letters_and_the_others_rows(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: the KPL puts user records that came into a wrong shard into the right one as well, and only those.
    Procedure: aggregates in which the hash of the key or an explicit hash key is of the other shard; put these again,
    where they belong; replay the dead letters, all dates, then the letters of this reason, and all dates again.
    """
    orders = Producer(spark, lake, server, shards=2, columns={"times": "id"})
    here, there, explicit = orders.users(2, shard=0), orders.users(2, shard=1), orders.users(2, shard=0)
    strays = [*there, UserRecord(explicit[0].key, explicit[0].data, HASH_KEYS - 1)]
    kept = UserRecord(there[0].key, explicit[1].data, HASH_KEYS // 2 - 1)
    no_json = UserRecord(there[0].key, b"no json")
    orders.send(aggregate_of(here[0], *strays, kept, no_json, here[1]))
    wrong = Counter(("wrong_shard", user.data) for user in (*strays, no_json))
    orders.drain()
    assert orders.letters() == wrong
    assert len(orders.drained()) == 3

    orders.send(aggregate_of(*strays), hash_key=HASH_KEYS - 1)
    orders.drain()
    replayed = replay_letters(orders.stream, lake=lake, session=lambda: spark)
    assert orders.drained() == orders.ids
    assert orders.letters() == wrong

    again: dict[str, Any] = {"lake": lake, "session": lambda: spark}
    orders.stream = replace(orders.stream, columns={"times": "id * 2"})
    replay_dates(orders.stream, first=ALL[0], last=ALL[1], **again)
    assert [(row["id"], row["times"]) for row in orders.rows()] == [(i, 2 * i) for i in orders.ids]
    assert orders.letters() == wrong
    compared = compare(orders.stream, **again)
    assert compared.agrees and compared.agreed == sum(orders.messages())
    with monkeypatch.context() as changed:  # as of a stream whose shards are chosen without keys by now
        changed.setattr(source, "_shards", lambda client, name, summary: of_all_keys(client, name))
        orders.stream = replace(orders.stream, columns={"times": "id * 3"})
        replay_dates(orders.stream, first=ALL[0], last=ALL[1], **again)
    assert [(row["id"], row["times"]) for row in orders.rows()] == [(i, 3 * i) for i in orders.ids]
    assert orders.letters() == wrong

    only = DeadLetterFilter(reason="wrong_shard")
    replay_letters(orders.stream, letter_filter=only, **again)
    with_strays, letters = orders.drained(), orders.letters()
    assert len(letters) == 1 and letters != wrong, "what is no JSON has that reason now"
    assert len(with_strays) == len(orders.ids) + len(strays), replayed
    replay_dates(orders.stream, first=ALL[0], last=ALL[1], **again)
    assert orders.drained() == with_strays, "what a person has made a row stays one"
    assert orders.letters() == letters
    assert compare(orders.stream, **again).agrees


def of_all_keys(client: Any, name: str) -> list[ListedShard]:
    return [replace(shard, hash_keys=source.ALL_HASH_KEYS) for shard in list_shards(client, name)]


def test_a_drain_that_stops_before_an_offset_ends_before_its_aggregate(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: the accounting says that a number in the middle of the second aggregate cannot be explained."""
    orders = Producer(spark, lake, server, shards=1)
    orders.send(*(aggregate_of(*orders.users(3)) for _ in range(3)))
    tp, once = TopicPartition("orders", 0), iter(["files written"])

    def at(point: str) -> None:
        if point == "files written" and next(once, ""):
            raise UnexplainedGap(stream=orders.stream.name, offsets=(OffsetRange(tp, 4, 5),))

    with pytest.raises(UnexplainedGap):
        orders.drain(at)
    assert orders.messages() == [3]
    orders.drain()

    assert orders.drained() == orders.ids
    assert orders.messages() == [3, 6]


@pytest.mark.scenario("Kinesis: records of several user records, large ones", "Kinesis: shards split, merged, scaled")
def test_an_aggregate_for_a_shard_that_was_split_gives_each_user_record_once(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: split the only shard; a producer that does not know yet puts an aggregate for both children, Kinesis
    gives it to one of them, and the producer puts what is of the other one again.
    """
    orders = Producer(spark, lake, server, shards=1)
    orders.send(aggregate_of(*orders.users(4)))
    orders.split()
    left, right = orders.users(3, shard=0), orders.users(3, shard=1)
    orders.send(aggregate_of(*left, *right))
    orders.send(aggregate_of(*right), hash_key=HASH_KEYS - 1)

    orders.drain()

    assert orders.drained() == orders.ids
    assert orders.letters() == Counter(("wrong_shard", user.data) for user in right)


@pytest.mark.scenario("Kinesis: records of several user records, large ones", "poison message")
def test_what_only_looks_like_an_aggregate_is_an_ordinary_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Pass: each is a dead letter with all of its bytes, once; what comes before and after are rows."""
    orders = Producer(spark, lake, server, shards=1)
    first, inner, last = (aggregate_of(*orders.users(2)) for _ in range(3))
    orders.ids = [0, 1, 4, 5]  # the nested ones are data of another's
    message = first[4:-16]
    index_too_high = aggregated()(keys=["a"], records=[{"key_index": 1, "data": b"{}"}]).SerializeToString()
    no_hash_key = aggregated()(keys=["a"], records=[{"key_index": 0, "hash_key_index": 0, "data": b"{}"}])
    words = aggregated()(keys=["a"], hash_keys=["-1"], records=[{"key_index": 0, "hash_key_index": 0, "data": b"{}"}])
    odd = [
        first[:-1] + bytes([first[-1] ^ 1]),  # MD5
        first[:10] + bytes([first[10] ^ 1]) + first[11:],
        MAGIC + b"plain data, with a magic number",
        MAGIC,
        MAGIC + b"15 bytes remain",
        sealed(b""),
        sealed(aggregated()(keys=["a"] * 300_000).SerializeToString()),
        sealed(message[:-1]),
        sealed(message + b"\xff"),
        sealed(index_too_high),
        sealed(no_hash_key.SerializeToString()),
        sealed(words.SerializeToString()),
        sealed(b"\x1a\x02\x08\x00"),  # a user record without data
        sealed(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),  # a length beyond everything
    ]
    orders.send(first, *odd, aggregate_of(UserRecord("a", inner)), last)

    assert (orders.drain(), orders.drain()) == (1, 0)

    assert orders.drained() == orders.ids
    assert Counter({data: n for (_, data), n in orders.letters().items()}) == Counter([*odd, inner])


@pytest.mark.scenario("Kinesis: records of several user records, large ones")
def test_user_records_are_decompressed_each_by_itself(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Producer(spark, lake, server, shards=1, compression="gzip")
    packed = [UserRecord(user.key, gzip.compress(user.data)) for user in orders.users(3)]
    orders.send(aggregate_of(*packed, UserRecord("a", b"{}")), packed[0].data)

    orders.drain()

    assert orders.drained() == [0, 0, 1, 2]
    assert orders.letters() == Counter({("not_gzip", b"{}"): 1})


def as_oracle(data: bytes) -> list[tuple[bytes, bytes, int]] | None:
    """Key, data and hash key of the user records by the Protobuf library; ``None``: an ordinary record."""
    parsed, found = aggregated()(), []
    try:
        parse_aggregate(data)
        parsed.ParseFromString(data[4:-16])
        for one in parsed.records:
            key = as_bytes(parsed.keys[one.key_index])
            explicit = as_bytes(parsed.hash_keys[one.hash_key_index]) if one.HasField("hash_key_index") else None
            if explicit is not None and not re.fullmatch(rb"[0-9]{1,39}", explicit):
                return None
            found.append((key, one.data, hash_key(key) if explicit is None else int(explicit)))
    except (AssertionError, DecodeError, IndexError):
        return None
    return found if found and parsed.IsInitialized() else None


def as_bytes(text: str | bytes) -> bytes:
    """Bytes of a string; the library gives those that are not UTF-8 as they are."""
    return text if isinstance(text, bytes) else text.encode()


def random_data(chance: random.Random) -> bytes:
    """Data of an aggregate, or of one that was changed or cut off, with the right MD5 or without."""
    keys = ["", "ü", *(f"key {n}" for n in range(5))]
    explicit = [None, None, 0, HASH_KEYS // 2, HASH_KEYS // 2 - 1, HASH_KEYS - 1]
    data = aggregate_of(
        *(
            UserRecord(chance.choice(keys), chance.randbytes(chance.choice([0, 1, 130])), chance.choice(explicit))
            for _ in range(chance.choice([0, 1, 1, 2, 5, 40]))
        )
    )
    if chance.random() < 0.5:
        return data
    message = data[4:-16]
    if chance.random() < 0.5:
        message = message[: chance.randrange(len(message) + 1)]
    elif message:
        at = chance.randrange(len(message))
        message = message[:at] + chance.randbytes(1) + message[at + 1 :]
    return sealed(message) if chance.random() < 0.8 else MAGIC + message + data[-16:]


@pytest.mark.parametrize("seed", range(3))
def test_records_are_read_as_the_protobuf_library_reads_them(
    spark: SparkSession, server: KinesisServer, seed: int
) -> None:
    """Procedure: read random records of a shard with half of the hash keys; ask where a plan may end."""
    chance, client, tp = random.Random(seed), kinesis(server), TopicPartition("orders", 0)
    data = [random_data(chance) for _ in range(400)]
    sent = [{"Data": each, "PartitionKey": "any", "ExplicitHashKey": "0"} for each in data]
    numbers = [put["SequenceNumber"] for put in client.put_records(StreamName="orders", Records=sent)["Records"]]
    server.advance(1)
    expected: list[tuple[Any, ...]] = []
    edges = [0]
    for number, each in zip(numbers, data, strict=True):
        if users := as_oracle(each):
            half = HASH_KEYS // 2
            expected += [(number, n, key, value, at >= half) for n, (key, value, at) in enumerate(users)]
        else:
            expected.append((number, None, b"any", each, None))
        edges.append(len(expected))
    start = ShardStart(tp, 0, Bookmark(), (0, HASH_KEYS // 2 - 1))
    until = int(server.now() * 1000)

    with captured(spark, access(server), "orders", [start], connection="main", until=until, most=10**6) as capture:
        rows = capture.rows.where("stop IS NULL").orderBy("offset").collect()
        found = [
            tuple(r[c] for c in ("sequence_number", "subsequence_number", "key", "value", "wrong_shard")) for r in rows
        ]
        assert found == [(*a, None if b is None else bytes(b), bytes(c), d) for *a, b, c, d in expected]
        assert [row["offset"] for row in rows] == list(range(len(expected)))
        of_spark = capture.rows.where("stop IS NULL AND coalesce(subsequence_number, 0) = 0")
        (digest,) = of_spark.selectExpr("bit_xor(xxhash64(sequence_number)) AS digest").collect()[0]
        assert capture.shards[tp].span.digest == digest
        for at in chance.sample(range(len(expected)), 8):
            around = max(e for e in edges if e <= at), min(e for e in edges if e >= at)
            assert capture.edges({tp: at}) == {tp: around}
            if around[0] < at:
                with pytest.raises(SeamOpen, match="inside the aggregate"):
                    capture.marks([OffsetRange(tp, 0, at)])
            elif at:
                (span,) = capture.marks([OffsetRange(tp, 0, at)]).spans.values()
                assert (span.records, span.last) == (at, numbers[edges.index(at) - 1])


def kinesis(server: KinesisServer) -> Any:
    """A client, of a stream ``orders`` with two shards."""
    client = kinesis_client(server.endpoint)
    client.create_stream(StreamName="orders", ShardCount=2)
    server.advance(60)
    return client


def access(server: KinesisServer) -> Sequence[str]:
    """Arguments of the reader on the executors."""
    keys = server.environment()
    return "us-east-1", server.endpoint, keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], ""
