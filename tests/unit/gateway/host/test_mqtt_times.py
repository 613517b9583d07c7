"""What the specification says about time: keep alive, expiry of sessions and messages (MQTT 5.0; G9); virtual time."""

from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Connect, Disconnect, Pingreq, Publish, Subscribe, Subscription, Will
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run

NEVER = 0xFFFFFFFF
LONGEST = 100
WATCH_S = 0.5
"""How often the gateway looks."""


def test_keep_alive_one_and_a_half_times(tmp_path: Path) -> None:
    """[MQTT-3.1.2-22]: not before, and soon after; any packet counts."""

    async def scenario() -> None:
        _, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c", keep_alive=10))
        await turn(14.9)
        assert not wire.is_closed
        wire.send(Pingreq())
        await turn(14.9)
        wire.send(Publish("a"))
        await turn(14.9)
        assert not wire.is_closed
        await turn(0.1 + WATCH_S)
        assert wire.received[-1].reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT  # type: ignore[union-attr]
        await server.stop()

    run(scenario())


def test_keep_alive_of_the_server(tmp_path: Path) -> None:
    """[MQTT-3.2.2-21]: what CONNACK says holds, not what was asked for."""

    async def scenario() -> None:
        _, server = await hosted(tmp_path, keep_alive_s=60)
        asks_more, asks_none, asks_less = (
            Wire(server).send(connect(f"c{keep_alive}", keep_alive=keep_alive)) for keep_alive in (120, 0, 10)
        )
        await turn(15 + WATCH_S)
        assert [wire.is_closed for wire in (asks_more, asks_none, asks_less)] == [False, False, True]
        await turn(75)
        for wire in (asks_more, asks_none):
            assert wire.received[0].properties["server_keep_alive"] == 60  # type: ignore[union-attr, index]
            assert wire.is_closed
        assert "server_keep_alive" not in asks_less.received[0].properties  # type: ignore[union-attr, operator]
        await server.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("at_connect", "at_disconnect", "granted"),
    [(10, None, 10), (10, 20, 20), (10, NEVER, LONGEST), (NEVER, None, LONGEST), (10, 0, 0), (0, None, 0), (0, 0, 0)],
)
def test_session_expiry(tmp_path: Path, at_connect: int, at_disconnect: int | None, granted: int) -> None:
    """3.1.2.11.2, 3.14.2.2.2: DISCONNECT may change it; 0xFFFFFFFF is as long as the limit allows, as CONNACK says."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, session_expiry_s=LONGEST)
        wire = Wire(server).send(connect("c", at_connect))
        await turn()
        announced = (wire.received[0].properties or {}).get("session_expiry_interval")  # type: ignore[union-attr]
        assert announced == (LONGEST if at_connect == NEVER else None)
        properties = None if at_disconnect is None else {"session_expiry_interval": at_disconnect}
        wire.send(Disconnect(properties=properties))
        if granted:
            await turn(granted - 1)
            assert harness.home.session("c") is not None
        await turn(2)
        assert harness.home.session("c") is None
        await server.stop()

    run(scenario())


def test_a_session_of_no_length_cannot_be_given_one_at_disconnect(tmp_path: Path) -> None:
    """3.14.2.2.2: a protocol error; and as such an end that publishes the will."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c", 0, will=Will("w", b"gone")))
        await turn()
        wire.send(Disconnect(properties={"session_expiry_interval": 10}))
        await turn()
        assert wire.received[-1].reason_code == ReasonCode.PROTOCOL_ERROR  # type: ignore[union-attr]
        assert harness.ids_of(b"gone")
        await server.stop()

    run(scenario())


def test_a_will_delay_longer_than_the_session(tmp_path: Path) -> None:
    """3.1.3.2.2: DISCONNECT with 0x04 and a shorter expiry: the will is due when the session ends."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        will = Will("w", b"gone", properties={"will_delay_interval": 500})
        wire = Wire(server).send(connect("c", 100, will=will))
        await turn()
        wire.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 20}))
        await turn(19)
        assert not harness.ids_of(b"gone")
        await turn(2)
        assert harness.ids_of(b"gone")
        assert harness.home.session("c") is None
        await server.stop()

    run(scenario())


def test_message_expiry_is_counted_down_and_ends(tmp_path: Path) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]: what waited so long comes with the rest of its time, or not at all; also what is
    retained."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        asleep = Wire(server).send(connect("asleep"), Subscribe(1, [Subscription("e/#", 1)]))
        sender = Wire(server).send(connect("sender"))
        await turn()
        asleep.send(Disconnect())
        for number, lifetime in enumerate((60, 20, None), start=1):
            properties = None if lifetime is None else {"message_expiry_interval": lifetime}
            sender.send(Publish(f"e/{number}", b"", 1, True, packet_id=number, properties=properties))
        sender.send(Publish("e/1", b"x", 1, True, packet_id=9, properties={"message_expiry_interval": 60}))
        sender.send(Publish("e/2", b"x", 1, True, packet_id=10, properties={"message_expiry_interval": 20}))
        await turn(30.5)
        awake = Wire(server).send(connect("asleep"))
        late = Wire(server).send(connect("late"), Subscribe(1, [Subscription("e/#", 1)]))
        await turn()
        came = [(p.topic, p.payload, p.properties) for p in awake.received if isinstance(p, Publish)]
        rest = {"message_expiry_interval": 29}
        assert came == [("e/1", b"", rest), ("e/3", b"", None), ("e/1", b"x", rest)]
        kept = [(p.topic, p.payload, p.properties) for p in late.received if isinstance(p, Publish)]
        assert kept == [("e/1", b"x", rest)]
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_a_3_1_1_session_has_no_expiry_but_the_limit(tmp_path: Path) -> None:
    """MQTT 3.1.1, 3.1.2.4: clean session 0 outlives the connection, 1 does not."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, session_expiry_s=LONGEST)
        for name, clean in (("kept", False), ("clean", True)):
            wire = Wire(server, 4).send(Connect(name, 4, clean))
            await turn()
            wire.lose()
        await turn(LONGEST - 10)
        assert harness.home.session("kept") is not None
        assert harness.home.session("clean") is None
        await turn(20)
        assert harness.home.session("kept") is None
        await server.stop()

    run(scenario())
