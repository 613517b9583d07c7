"""Message presence over HTTP: queries about a message, and events reported by agents (M9, M11-M13)."""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.errors import BusError
from gateway.http.identity import Caller
from gateway.http.problems import Problem, bad_request, refusal
from gateway.http.target import decode_percent
from gateway.shard.message_presence import MessagePresence
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.events import CLOCKS_APART_S, MessagePresenceEvent
from schemas.states import MessagePresenceState

RIGHTS_TOPIC = "$message-presence"
"""Clients that may subscribe to `$message-presence/<id>` may query; those that may publish there may report events."""

ID_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
"""Pattern of a message id, usually a UUID."""

EVENT_BYTES = 8192


Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_000_000)]
"""µs since the epoch, up to the year 9999."""

Name = Annotated[str, Meta(max_length=1024)]


class ReportedEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a POST: an event, without the message and the agent, which path and caller give."""

    event: Literal["attempting", "propagated", "claimed", "delivered", "refused", "expired", "retired"]
    at_us: Moment
    origin: Name = ""
    peer: Name = ""
    reason: Name = ""
    until_us: Moment = 0


class Claimed(msgspec.Struct, frozen=True):
    """The answer to `claimed`: whether the caller may deliver, and the message's current state."""

    granted: bool
    state: MessagePresenceState


class MessagePresenceHandler:
    """Handles requests of agents. `timeout_s`: how long Kafka may take for an event, and the ledger for a claim."""

    def __init__(self, presence: MessagePresence, clock: Callable[[], float], timeout_s: float) -> None:
        self._presence = presence
        self._clock = clock
        self._timeout_s = timeout_s

    def ask(self, caller: Caller, message_id: str) -> MessagePresenceState:
        """The current state of a message. Raises Problem 403, 404."""
        reason = caller.rules.subscribe(f"{RIGHTS_TOPIC}/{message_id}")
        if reason is not ReasonCode.SUCCESS:
            raise refusal(reason)
        state = self._presence.get(message_id, self._clock())
        if state is None:
            raise Problem(404, "unknown_message", "no agent has reported this message, or its record is no longer kept")
        return state

    async def say(self, caller: Caller, message_id: str, body: bytes) -> Claimed | None:
        """Stores an event; returns the answer to a claim once it is decided. Raises Problem: 400 for an invalid body or
        an event that the ledger would reject; 403; 503 if Kafka or the ledger does not answer in time. After 503 the
        event may still be stored, and repeating the request is safe."""
        if not caller.is_known:
            raise bad_request("nameless_client", "an agent needs a name: send X-Client-Id or credentials")
        reason = caller.rules.publish(Publish(f"{RIGHTS_TOPIC}/{message_id}", body)).reason
        if reason is not ReasonCode.SUCCESS:
            raise refusal(reason)
        reported = _reported_event(body)
        now = self._clock()
        if reported.at_us > (now + CLOCKS_APART_S) * 1e6:
            raise bad_request(
                "clock_ahead",
                f"at_us = {reported.at_us} is more than {CLOCKS_APART_S} s after the gateway's clock, {int(now * 1e6)}"
                ": set the agent's clock and report again",
            )
        event = MessagePresenceEvent(id=message_id, agent=caller.client, **msgspec.structs.asdict(reported))
        elapsed = asyncio.get_running_loop().time
        began = elapsed()
        try:
            async with asyncio.timeout(self._timeout_s):
                place = await self._presence.tell(event)
                if reported.event != "claimed":
                    return None
                state = await self._presence.judged(message_id, place)
        except TimeoutError as error:
            raise Problem(
                503, "not_in_time", "Kafka or the ledger did not answer in time; repeating the request is safe"
            ) from error
        except BusError as error:
            raise Problem(503, "kafka_error", str(error)) from error
        now_ms = place.appended_ms + int((elapsed() - began) * 1000)  # the broker's clock decides on claims
        is_granted = state.is_claimed_by(caller.client, reported.at_us, now_ms)
        return Claimed(is_granted, state)


def named_message(text: str) -> str:
    """The message id in a path. Raises Problem 400."""
    message_id = decode_percent(text, "the message id")
    if not re.fullmatch(ID_PATTERN, message_id):
        raise bad_request(
            "malformed_message_id",
            "a message id must have 1 to 128 letters, digits and - . _ :, and start with a letter or digit",
        )
    return message_id


def _reported_event(body: bytes) -> ReportedEvent:
    try:
        reported = msgspec.json.decode(body, type=ReportedEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_request("malformed_body", f"the body is not an event: {error}") from error
    if reported.event in ("propagated", "delivered") and not reported.peer:
        raise bad_request("malformed_body", f"the event {reported.event} requires a peer")
    return reported
