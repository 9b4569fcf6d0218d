"""Credentials that the brokers stop taking: before a drain, under it, and what is said."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from kdi_assets.drain.look import look
from kdi_assets.ledger.log import TableLog
from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, start_broker
from kdi_assets.runtime.ports import free_port
from kdi_assets.settings import Settings
from kdi_assets.sources.kafka import oldest_timestamps
from kdi_assets.sources.kafka_client import AccessRefused
from kdi_assets.sources.publisher import ensure_topic
from kdi_assets.stream import KafkaCluster, TopicPartition
from tests.driven import DrivenStream, web_requests
from tests.faults.scenarios import deep
from tests.faults.topics import admin
from tests.kafka_log import Publisher
from tests.spark.test_warm_driver import wait_until

pytestmark = pytest.mark.scenario("credentials expire")

SAID_AT_ONCE_SECONDS = 5
"""Half of what a look waits for a broker that says nothing."""


@dataclass(frozen=True)
class Guarded:
    """A broker with a door for its admin, and one that asks for credentials."""

    inside: KafkaCluster
    door: str

    def cluster(self, password: str, *, mechanism: str) -> KafkaCluster:
        """The cluster as a stream's document names it."""
        sasl = {"sasl.mechanisms": mechanism, "sasl.username": "kdi", "sasl.password": password}
        return KafkaCluster("main", self.door, {"security.protocol": "SASL_PLAINTEXT", **sasl})

    def set_password(self, password: str) -> None:
        """Change the user's password for SCRAM, as of now."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("kdi", how, password.encode())
        for changed in admin(self.inside).alter_user_scram_credentials([change]).values():
            changed.result(10)


@pytest.fixture(scope="module")
def guarded(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that takes kdi's password by PLAIN, which stays, and by SCRAM, where it can be changed."""
    ports: set[int] = set()
    while len(ports) < 3:
        ports.add(free_port())
    plain, sasl, controller = ports
    door, login = "listener.name.sasl_plaintext", "org.apache.kafka.common.security"
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{door}.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_kdi="right";',
        f"{door}.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    jvm_options = (*JVM_OPTIONS, *QUICK_START)
    data = tmp_path_factory.mktemp("guarded")
    broker = start_broker(data, port=plain, home=settings.home, jvm_options=jvm_options, properties=properties)
    yield Guarded(KafkaCluster("main", broker.bootstrap_servers), f"127.0.0.1:{sasl}")
    broker.stop()


@pytest.fixture
def web(request: pytest.FixtureRequest, guarded: Guarded, lake: str, spark: SparkSession) -> DrivenStream:
    """A stream over a topic of the guarded broker; its document has no credentials yet."""
    topic = re.sub(r"\W+", "_", request.node.name)
    admin(guarded.inside).create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    publisher = Publisher(guarded.inside.bootstrap_servers)
    return DrivenStream(web_requests(topic, guarded.inside), lake, publisher, lambda: spark)


def test_a_wrong_password_is_said_as_such_and_at_once(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: of refused credentials a request only knows that its time ran out; "no answer" sends people to the
    network.
    Procedure: drain, look and publish with a wrong password; drain with the right one.
    Pass: each refusal names authentication within seconds; no table is made; then everything arrives.
    """
    produced = web.produce(20, bad=0.2)
    wrong = web.with_definition(cluster=guarded.cluster("wrong", mechanism="PLAIN"))
    began = time.monotonic()

    with pytest.raises(AccessRefused, match="refuses authentication .*Invalid username or password"):
        wrong.drain()
    refusal = look(wrong.stream, web.lake).refusal
    with pytest.raises(AccessRefused, match="refuses authentication"):
        ensure_topic(wrong.stream.cluster, web.stream.topic, partitions=2)
    with pytest.raises(AccessRefused, match="refuses authentication"):
        oldest_timestamps(wrong.stream.cluster, {TopicPartition(web.stream.topic, 0): 0})

    assert isinstance(refusal, AccessRefused)
    assert time.monotonic() - began < 4 * SAID_AT_ONCE_SECONDS
    assert TableLog.open(web.uri) is None
    web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN")).drain()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("point", [deep("before reading"), "files written"])
def test_a_password_changed_under_a_drain_commits_nothing_and_is_named(
    guarded: Guarded, web: DrivenStream, point: str
) -> None:
    """Purpose: credentials run out in the middle of a run, where Spark meets them and not our own client.
    Procedure: drain; produce; drain, and at the point the broker gets another password; drain with that one.
    Pass: the drain names authentication, the version stays; with the new password everything is there once.
    """
    guarded.set_password("first")
    first = guarded.cluster("first", mechanism="SCRAM-SHA-256")
    old = web.with_definition(cluster=first)
    wait_until(lambda: look(old.stream, web.lake).refusal is None, seconds=20)
    web.produce(10, bad=0.3)
    old.drain()
    produced = web.produce(20, bad=0.3, seed=1)
    before = TableLog.existing(web.uri).version

    with pytest.raises(AccessRefused, match="refuses authentication"):
        old.drain(at=lambda reached: guarded.set_password("second") if reached == point else None)

    assert TableLog.existing(web.uri).version == before
    web.with_definition(cluster=guarded.cluster("second", mechanism="SCRAM-SHA-256")).drain()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_right_taken_away_is_said_as_such(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: a topic that we may not see is neither missing nor out of reach.
    Procedure: drain; an ACL denies the topic; produce; drain; the ACL is removed; drain.
    Pass: the refusal names authorization and the topic; afterwards everything is there once.
    """
    mine = web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN"))
    web.produce(10)
    mine.drain()
    named = (ResourceType.TOPIC, web.stream.topic, ResourcePatternType.LITERAL)
    denied = AclBinding(*named, "User:kdi", "*", AclOperation.ALL, AclPermissionType.DENY)
    admin(guarded.inside).create_acls([denied])[denied].result(10)
    produced = web.produce(10, seed=1)

    with pytest.raises(AccessRefused, match=f"refuses authorization .*{web.stream.topic}"):
        mine.drain()
    without = replace(web.stream, topic="no_such_topic")
    assert "no topic" in str(look(without, web.lake).refusal)

    gone = AclBindingFilter(*named, "User:kdi", "*", AclOperation.ANY, AclPermissionType.ANY)
    admin(guarded.inside).delete_acls([gone])[gone].result(10)
    wait_until(lambda: look(mine.stream, web.lake).refusal is None, seconds=20)
    mine.drain()
    web.assert_each_offset_once(produced)
