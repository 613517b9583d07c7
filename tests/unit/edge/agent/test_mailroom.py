"""Reports go back to the senders of mail, whatever they take (M2, M21)."""

import asyncio
import re
from collections.abc import Sequence

from edge.agent.dsn import Failure
from edge.agent.envelope import Mail
from edge.agent.mailroom import Mailroom
from edge.agent.routes import Routes
from edge.client.errors import MessageTooLarge
from tests.unit.edge.agent.agent_harness import Clock

FAILURES = [Failure(f"{number}@b.example", "550 " + "no " * 100, False, True) for number in range(100)]
MAIL = Mail(
    "a" * 32, "ann@a.example", tuple(one.address for one in FAILURES), b"Subject: " + b"x" * 5_000 + b"\r\n\r\n"
)


class Sender:
    """Takes messages of up to `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken: dict[str, bytes] = {}

    async def send(
        self, destination: str, payload: bytes, content_type: str, properties: Sequence[tuple[str, str]]
    ) -> None:
        if len(payload) > self._most:
            raise MessageTooLarge(f"{len(payload)} bytes, and {self._most} are allowed")
        self.taken[dict(properties)["id"]] = payload


def reported(sender: Sender) -> str:
    mailroom = Mailroom(sender, Routes({"a.example": "a"}, []), take=None, host="far", wall_s=Clock().wall_s)
    return asyncio.run(mailroom.report(MAIL, FAILURES))


def told(sender: Sender) -> list[bytes]:
    return [one for payload in sender.taken.values() for one in re.findall(rb"Final-Recipient: rfc822; (\S+)", payload)]


def test_a_report_that_is_too_large_goes_in_parts() -> None:
    """All recipients are in them, once; made again, as after a kill, they have the same ids."""
    sender = Sender(10_000)
    assert reported(sender).startswith("to ann@a.example, as ")
    assert len(sender.taken) > 1
    assert told(sender) == [one.address.encode() for one in FAILURES]
    again = Sender(10_000)
    reported(again)
    assert list(again.taken) == list(sender.taken)


def test_a_report_goes_without_the_header_before_it_is_divided() -> None:
    whole = Sender(1 << 20)
    reported(whole)
    [content] = whole.taken.values()
    assert b"x" * 5_000 in content
    sender = Sender(len(content) - 1)
    reported(sender)
    assert len(sender.taken) == 1


def test_a_report_that_can_never_be_sent_blocks_nothing() -> None:
    """It is not tried again."""
    assert reported(Sender(10)).startswith("nobody: the report is too large")
