"""Messages as the application sees them: those it sends, with their state, and those it receives."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from mqtt.packets import Publish
from schemas.conversations import CONVERSATION, GONE, RECEIVER
from schemas.presence_topics import is_presence
from schemas.receipts import MESSAGE_ID_PROPERTY, RECEIPT_MARK
from schemas.repeated_requests import REPEATED


class MessageState(Enum):
    """The state of a message that is sent."""

    ACCEPTED = "accepted"  # here, on disk
    ACKNOWLEDGED = "acknowledged"  # the gateway has it, in Kafka
    REFUSED = "refused"  # the gateway does not accept it
    EXPIRED = "expired"  # its lifetime ended before it was sent


class Message:
    """A message that the client has accepted. It has no reference to the payload: keep as many as you like.

    `await message.acknowledged` returns once the gateway has it, and raises PublishRefused or Expired, or the error
    that ended the client; then `state` is still `ACCEPTED`, and the message is sent when the client is opened again.
    `sequence` numbers the messages of one store from 1.
    """

    __slots__ = ("__weakref__", "_done", "error", "qos", "sequence", "state", "topic")

    def __init__(self, sequence: int, topic: str, qos: int) -> None:
        self.sequence, self.topic, self.qos = sequence, topic, qos
        self.state = MessageState.ACCEPTED
        self.error: Exception | None = None
        self._done: asyncio.Future[None] | None = None

    @property
    def acknowledged(self) -> Awaitable[None]:
        """Awaitable, any number of times."""
        return _Acknowledged(self)

    def ended(self, state: MessageState, error: Exception | None = None) -> None:
        """For the client: what became of the message."""
        self.state, self.error = state, error
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def _wait(self) -> None:
        if self.state is MessageState.ACCEPTED and self.error is None:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)
        if self.error is not None:
            raise self.error

    def __repr__(self) -> str:
        return f"<Message {self.sequence} to {self.topic!r}: {self.state.value}>"


class _Acknowledged:
    def __init__(self, message: Message) -> None:
        self._message = message

    def __await__(self) -> Generator[Any, None, None]:
        return self._message._wait().__await__()


class IncomingMessage:
    """A message that the client has received. `acknowledge()` tells the gateway that the application is done with it;
    asking :meth:`Client.messages` for the next one does that, too."""

    __slots__ = ("_accept", "_packet")

    def __init__(self, packet: Publish, accept: Callable[[Publish], object]) -> None:
        self._packet, self._accept = packet, accept

    @property
    def topic(self) -> str:
        return self._packet.topic

    @property
    def payload(self) -> bytes:
        return self._packet.payload

    @property
    def qos(self) -> int:
        return self._packet.qos

    @property
    def retain(self) -> bool:
        return self._packet.retain

    @property
    def content_type(self) -> str | None:
        """None on MQTT 3.1.1, like the following."""
        value: str | None = self._property("content_type")
        return value

    @property
    def response_topic(self) -> str | None:
        """Where a reply is expected."""
        value: str | None = self._property("response_topic")
        return value

    @property
    def correlation(self) -> bytes | None:
        """By which the sender recognises the reply."""
        value: bytes | None = self._property("correlation_data")
        return value

    @property
    def expiry_s(self) -> int | None:
        """What is left of the message's lifetime, in seconds; None: it does not expire."""
        value: int | None = self._property("message_expiry_interval")
        return value

    @property
    def is_utf8(self) -> bool:
        """Whether the sender says that the payload is UTF-8 (MQTT 5.0, 3.3.2.3.2)."""
        return bool(self._property("payload_format_indicator"))

    @property
    def packet_id(self) -> int:
        """The packet id of this delivery; 0 at QoS 0."""
        return self._packet.packet_id

    @property
    def user_properties(self) -> list[tuple[str, str]]:
        return list(self._property("user_property") or ())

    @property
    def presence(self) -> "Presence | None":
        """What a message to `$presence/…` reports; None for other messages (R12)."""
        return Presence.of(self) if is_presence(self.topic) else None

    @property
    def receipt(self) -> "Receipt | None":
        """What a receipt says of a message that this client has published; None for other messages (Q13)."""
        return Receipt.of(self) if any(name == RECEIPT_MARK for name, _ in self.user_properties) else None

    @property
    def id_to_read(self) -> str | None:
        """The id of a message whose sender wants to hear that it is read: see :meth:`Client.tell_read`; None for
        others."""
        return next((value for name, value in reversed(self.user_properties) if name == MESSAGE_ID_PROPERTY), None)

    @property
    def conversation_gone(self) -> str | None:
        """The id of the conversation whose receiver is gone, if the platform tells that: the next message of it goes to
        another receiver, which knows nothing of it. None for other messages (R6)."""
        told = dict(self.user_properties)
        return told.get(CONVERSATION) if told.get(RECEIVER) == GONE else None

    @property
    def is_repeated(self) -> bool:
        """Whether its sender has sent this request before, and got no reply: another receiver, or this one, may have
        had it (R6)."""
        return (REPEATED, "true") in self.user_properties

    def acknowledge(self) -> None:
        """The application is done with the message. May be called again."""
        self._accept(self._packet)

    def on_thread(self, call: Callable[[Callable[[], None]], object]) -> "IncomingMessage":
        """The message for another thread: `call` runs its acknowledgement on the client's loop."""
        return IncomingMessage(self._packet, lambda _: call(self.acknowledge))

    def _property(self, name: str) -> Any:
        return (self._packet.properties or {}).get(name)

    def __repr__(self) -> str:
        return f"<IncomingMessage to {self.topic!r}, {len(self.payload)} bytes>"


@dataclass(frozen=True)
class Presence:
    """Whether a client is online, since `at_us` (µs since the epoch, by its gateway's clock), and if not, why."""

    client: str
    online: bool
    at_us: int
    reason: str

    @classmethod
    def of(cls, message: IncomingMessage) -> "Presence | None":
        """None if the payload is not a presence message, such as the empty one that clears a retained message."""
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(message.payload, type=cls)
        return None


@dataclass(frozen=True)
class Receipt:
    """What has become of a message (:mod:`schemas.receipts`): `receipt` is the one that was asked for; so many
    `recipients` have got the message so far, and so many have `read` it; no more can get it if it is `complete`;
    `outcomes` has the number of recipients by outcome."""

    message_id: str
    receipt: str
    recipients: int
    read: int
    complete: bool
    outcomes: dict[str, int]

    @classmethod
    def of(cls, message: IncomingMessage) -> "Receipt | None":
        """None if the payload is none of a receipt."""
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(message.payload, type=cls)
        return None
