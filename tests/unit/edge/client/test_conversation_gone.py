"""A client whose conversation has lost its receiver (R6): told as a message, and not as a reply."""

import asyncio
from typing import Any

import pytest

from edge.client.message import IncomingMessage
from edge.client.requests import Requests
from mqtt.packets import Publish


def incoming(pairs: list[tuple[str, str]], **properties: Any) -> IncomingMessage:
    packet = Publish("@c", b"", 1, properties={"user_property": pairs, **properties})
    return IncomingMessage(packet, lambda _: None)


@pytest.mark.parametrize(
    ("pairs", "conversation"),
    [
        ([("conversation", "k"), ("conversation-receiver", "gone")], "k"),
        ([("conversation", "k"), ("conversation-receiver", "here")], None),
        ([("conversation", "k")], None),
        ([("conversation-receiver", "gone")], None),
        ([], None),
    ],
)
def test_which_conversation_is_meant(pairs: list[tuple[str, str]], conversation: str | None) -> None:
    assert incoming(pairs).conversation_gone == conversation


def test_a_request_waits_on_for_the_reply_of_the_next_receiver() -> None:
    async def scenario() -> None:
        requests = Requests(1)
        with requests.begin("failed") as request:
            correlation = request.correlation
            told = incoming([("conversation", "k"), ("conversation-receiver", "gone")], correlation_data=correlation)
            assert not requests.take(told)
            answer = incoming([("conversation", "k")], correlation_data=correlation)
            assert requests.take(answer)
            assert await request.answer() is answer
        assert not requests.take(told), "it is none that comes too late either"
        assert requests.late == 0

    asyncio.run(scenario())
