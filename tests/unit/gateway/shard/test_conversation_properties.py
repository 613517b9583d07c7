"""Which conversation a message belongs to, and which ids are refused (R6)."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.conversation_properties import conversation_in, conversation_of
from mqtt.codes import PacketType, ReasonCode
from mqtt.properties import NO_PROPERTIES, encode_properties
from schemas.envelope import Meta
from tests.unit.gateway.shard.home_harness import PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

MOST = 10
IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=MOST + 2)


def named(*ids: str) -> dict[str, Any]:
    return {"user_property": [("other", "x"), *(("conversation", one) for one in ids)]}


@given(st.lists(IDS, max_size=3))
def test_one_id_of_the_right_size_or_none(ids: list[str]) -> None:
    properties = named(*ids)
    section = encode_properties(properties, PacketType.PUBLISH)
    if not ids:
        assert conversation_in(properties, MOST) is conversation_of(section, MOST) is None
    elif len(ids) == 1 and 0 < len(ids[0].encode()) <= MOST:
        assert conversation_in(properties, MOST) == conversation_of(section, MOST) == ids[0]
    else:
        with pytest.raises(ValueError, match=r"conversation"):
            conversation_in(properties, MOST)
        assert conversation_of(section, MOST) is None
    assert conversation_of(NO_PROPERTIES, MOST) is None


async def _sent(harness: HomeHarness, properties: dict[str, Any], topic: str = "a") -> tuple[list[str], list[int]]:
    """Flags of the messages that reach Kafka, and why others are refused."""
    sender = await harness.client("sender")
    for qos in range(3):
        sender.publish(topic, b"%d" % qos, qos, properties=properties)
    await turn()
    on_ingress = [harness.broker.partitions[harness.topics.ingress, p] for p in range(PARTITIONS)]
    headers = [record.headers() or [] for records in on_ingress for record in records]
    return [Meta.decode(header[2][1]).flags for header in headers], [reason.value for reason in sender.refused]


def test_messages_of_a_conversation_are_marked(tmp_path: Path) -> None:
    """R6, Q12: once, at the source gateway."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        assert await _sent(harness, named("x" * 128)) == (["c"] * 3, [])

    run(scenario())


@pytest.mark.parametrize("ids", [("",), ("x" * 129,), ("ü" * 65,), ("a", "a")])
def test_an_id_that_is_not_valid_is_refused(tmp_path: Path, ids: tuple[str, ...]) -> None:
    """R6: for all who would have got the message; the sender is told, and it is counted."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        assert await _sent(harness, named(*ids)) == ([], [ReasonCode.PAYLOAD_FORMAT_INVALID] * 2)
        assert harness.node.counts["refused_conversation"] == 3

    run(scenario())


@pytest.mark.parametrize("ids", [(), ("a",), ("",)])
def test_without_conversations_the_property_has_no_meaning(tmp_path: Path, ids: tuple[str, ...]) -> None:
    async def scenario() -> None:
        harness = HomeHarness(tmp_path)
        harness.environment = {"WAYSTATION_GATEWAY__SHARES__CONVERSATIONS": "0"}
        assert await _sent(await harness.start(), named(*ids)) == ([""] * 3, [])

    run(scenario())


def test_an_inbox_has_no_conversations(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        assert await _sent(harness, named(""), "@sender") == ([""] * 3, [])

    run(scenario())
