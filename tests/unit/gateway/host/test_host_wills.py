"""Wills and messages that the gateway does not accept: who is told what, in which version, and that bridges stay."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.host.authenticator import Credentials
from gateway.shard.rules import ClientRules, Everything, Verdict
from mqtt.codes import ReasonCode
from mqtt.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Subscription, Will
from tests.unit.gateway.host.test_host_connection import Wire, hosted
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run

STATE = "$SYS/broker/connection/town/bridge/state"
NOT_AUTHORIZED, INVALID, QUOTA = ReasonCode.NOT_AUTHORIZED, ReasonCode.TOPIC_NAME_INVALID, ReasonCode.QUOTA_EXCEEDED
versioned = pytest.mark.parametrize("version", [4, 5])


class Refusing(Everything):
    """Refuses every message for the reason that its topic names."""

    open = False

    def publish(self, packet: Publish) -> Verdict:
        return Verdict(ReasonCode[packet.topic])


class RefusingAuthenticator:
    async def admit(self, credentials: Credentials) -> ClientRules:
        return Refusing()


@versioned
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_state_of_a_bridge_is_left_out_of_its_connect(tmp_path: Path, version: int, qos: int, retain: bool) -> None:
    """The bridge is let in, its will is not published; the log and the metrics say so."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        will = Will(STATE, b"0", qos, retain)
        with capture_logs() as lines:
            wire = Wire(server, version).send(Connect("bridge", version, False, will=will))
            await turn()
        assert isinstance(wire.received[0], Connack)
        assert not wire.received[0].reason_code
        assert [line["client"] for line in lines if line["event"] == "bridge accepted without its will"] == ["bridge"]
        assert server.counts["will_left_out"] == 1
        wire.lose()
        await turn()
        assert harness.published() == {}
        assert not harness.fatal
        await server.stop()

    run(scenario())


@versioned
@pytest.mark.parametrize(
    ("topic", "size", "reason", "return_code"),
    [
        ("$SYS", 1, INVALID, 5),
        ("$SYS/x", 1, INVALID, 5),
        ("$SYS/broker/connection/state", 1, INVALID, 5),
        ("$SYS/broker/connection/a/stat", 1, INVALID, 5),
        ("$presence/a", 1, INVALID, 5),
        ("feeds/flight/radar@0", 1, INVALID, 5),
        ("$read/1", 1, INVALID, 5),
        ("SUCCESS", 2_000, QUOTA, 3),
        ("NOT_AUTHORIZED", 1, NOT_AUTHORIZED, 5),
        ("TOPIC_NAME_INVALID", 1, INVALID, 5),
        ("QUOTA_EXCEEDED", 1, QUOTA, 3),
        ("MESSAGE_RATE_TOO_HIGH", 1, QUOTA, 3),
    ],
)
def test_a_will_that_is_not_accepted_is_answered_and_logged(
    tmp_path: Path, version: int, topic: str, size: int, reason: ReasonCode, return_code: int
) -> None:
    """The code names the cause where the protocol has one; the log names client and cause."""

    async def scenario() -> None:
        _, server = await hosted(tmp_path, will_bytes=1_000)
        server.authenticator = RefusingAuthenticator()
        with capture_logs() as lines:
            wire = Wire(server, version).send(Connect("c", version, will=Will(topic, bytes(size))))
            await turn()
        (answer,) = wire.received
        assert isinstance(answer, Connack)
        assert answer.reason_code == (reason if version == 5 else return_code)
        assert wire.is_closed
        (line,) = [line for line in lines if line["event"] == "client not admitted"]
        assert (line["client"], "the will" in line["reason"]) == ("c", True)
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("mark", [("waystation-receipt", "failed"), ("conversation-receiver", "gone")])
def test_a_will_cannot_pass_for_a_message_of_the_platform(tmp_path: Path, mark: tuple[str, str]) -> None:
    """Q13, R6: recipients rely on it that these are the platform's."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        properties = {"user_property": [mark]}
        wire = Wire(server, 5).send(Connect("c", 5, will=Will("@victim", b"{}", properties=properties)))
        await turn()
        (answer,) = wire.received
        assert isinstance(answer, Connack)
        assert answer.reason_code == NOT_AUTHORIZED
        assert harness.published() == {}
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("topic", [STATE, "$SYS/x", "$presence/a", "feeds/flight/radar@0"])
def test_who_cannot_hear_a_refusal_does_not_send_the_same_for_ever(tmp_path: Path, topic: str) -> None:
    """3.1.1 has no PUBACK that says no: what nobody may ever publish is dropped and acknowledged [MQTT-3.3.5-2 of
    3.1.1], in its turn, and counted. Otherwise the client would connect and send it again without end."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server, 4).send(Connect("bridge", 4, False), Subscribe(1, [Subscription("#", 0)]))
        await turn()
        wire.received.clear()
        with capture_logs() as lines:
            wire.send(*(Publish(topic, b"1", qos, True, packet_id=qos) for qos in (0, 1, 2)))
            wire.send(Publish("a", b"", 1, packet_id=9), Pubrel(2))
            await turn()
        assert [p for p in wire.received if not isinstance(p, Publish)] == [Puback(1), Pubrec(2), Pubcomp(2), Puback(9)]
        assert [line["topic"] for line in lines if line["event"] == "PUBLISH to a reserved topic dropped"] == [topic]
        assert harness.node.counts["refused_system_topic"] == 3
        assert len(harness.published()) == 1
        assert not wire.is_closed
        await server.stop()

    run(scenario())
