"""Message presence over HTTP: queries about messages, and events reported by agents; one at a time (:meth:`ask`,
:meth:`say`), or in batches with one wait for all (M9, M11-M13)."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final, TypeVar, get_type_hints

import msgspec

from gateway.errors import BusError
from gateway.host.host_server import HostServer
from gateway.http.identity import Caller
from gateway.http.problems import Problem, bad_request, refusal, too_many_in_flight
from gateway.http.target import decode_percent
from gateway.mesh.platform import Platform
from gateway.shard.message_presence import Place
from gateway.slices import in_slices
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.events import CLOCKS_APART_S, MessagePresenceEvent
from schemas.mesh_api import (
    EVENTS_MAX,
    IDS_MAX,
    MESSAGE_ID_PATTERN,
    STATES_BYTES,
    PresenceAnswer,
    PresenceQuery,
    ReportedEvent,
    ReportResult,
    ReportsAnswer,
    ReportsRequest,
)
from schemas.states import MessagePresenceState
from schemas.undecodable import UNDECODABLE

RIGHTS_TOPIC = "$message-presence"
"""Clients that may subscribe to `$message-presence/<id>` may query; those that may publish there may report events."""

EVENT_BYTES: Final = 8192
REPORTS_BYTES: Final = EVENTS_MAX * EVENT_BYTES
QUERY_BYTES: Final = IDS_MAX * 256

_NOT_IN_TIME: Final = "Kafka or the ledger did not answer in time; repeating the request is safe"


_types = get_type_hints(ReportedEvent, include_extras=True)

OneEvent: type[msgspec.Struct] = msgspec.defstruct(
    "OneEvent",
    [(f.name, _types[f.name], f.default) for f in msgspec.structs.fields(ReportedEvent) if f.name != "id"],
    frozen=True,
    forbid_unknown_fields=True,
)
"""The body of a POST about one message, which the path names: the other fields of an event."""


T = TypeVar("T")


class Claimed(msgspec.Struct, frozen=True):
    """The answer to `claimed`: whether the caller may deliver, and the message's current state."""

    granted: bool
    state: MessagePresenceState


class MessagePresenceHandler:
    """Handles requests of agents. `timeout_s`: how long Kafka may take for an event, and the ledger for a claim.
    `platform`, if it takes bundles, signs receipts of those that it has taken."""

    def __init__(self, hosts: HostServer, timeout_s: float, platform: Platform | None = None) -> None:
        self._presence = hosts.home.message_presence
        self._is_flooded = hosts.is_flooded
        self._clock = hosts.clock
        self._timeout_s = timeout_s
        self._platform = platform

    def ask(self, caller: Caller, message_id: str) -> MessagePresenceState:
        """The current state of a message. Raises Problem 403, 404."""
        _check_may_ask(caller, message_id)
        state = self._presence.get(message_id, self._clock())
        if state is None:
            raise Problem(404, "unknown_message", "no agent has reported this message, or its record is no longer kept")
        return state

    async def ask_many(self, caller: Caller, body: bytes) -> PresenceAnswer:
        """The states of the messages that are known, as far as they fit, and receipts for those that the platform has
        taken. Raises Problem 400, 403."""
        states: dict[str, MessagePresenceState] = {}
        receipts: dict[str, bytes] = {}
        left_out: list[str] = []
        size = 0
        async for message_id in in_slices(decoded(body, PresenceQuery).ids):
            _check_may_ask(caller, message_id)
            state = self._presence.get(message_id, self._clock())
            if state is not None and message_id not in states:
                size += 0 if left_out else len(msgspec.json.encode(state))
                if left_out or size > STATES_BYTES:
                    left_out.append(message_id)
                    continue
                states[message_id] = state
                receipt = self._receipt(state)
                if receipt:
                    receipts[message_id] = receipt
        return PresenceAnswer(states, receipts, left_out)

    def _receipt(self, state: MessagePresenceState) -> bytes:
        platform = self._platform
        if platform is None or state.state != "delivered" or state.delivered_by != platform.name:
            return b""
        return platform.receipt(state.id, state.delivered_us // 1000).encoded

    async def say(self, caller: Caller, message_id: str, body: bytes) -> Claimed | None:
        """Stores an event; returns the answer to a claim once it is decided. Raises Problem: 400 for an invalid body or
        an event that the ledger would reject; 403; 503 if too much is in flight to Kafka, or if Kafka or the ledger
        does not answer in time. After 503 the event may still be stored, and repeating the request is safe."""
        _check_named(caller)
        _check_may_tell(caller, message_id)
        reported = ReportedEvent(message_id, **msgspec.structs.asdict(decoded(body, OneEvent)))
        self._check(reported)
        (result,) = await self._store(caller, [reported])
        if isinstance(result, Problem):
            raise result
        return result

    async def say_many(self, caller: Caller, body: bytes) -> ReportsAnswer:
        """Stores events in their order; claims are judged together. What is wrong with one, its result says. Raises
        Problem 400 for a malformed body, 503 if too much is in flight to Kafka."""
        _check_named(caller)
        asked = decoded(body, ReportsRequest).events
        problems: dict[int, Problem] = {}
        for number, reported in enumerate(asked):
            try:
                _check_may_tell(caller, reported.id)
                self._check(reported)
            except Problem as problem:
                problems[number] = problem
        stored = iter(await self._store(caller, [e for n, e in enumerate(asked) if n not in problems]))
        results = [problems[number] if number in problems else next(stored) for number in range(len(asked))]
        return ReportsAnswer([_result(result) for result in results])

    def _check(self, reported: ReportedEvent) -> None:
        if reported.event in ("propagated", "delivered") and not reported.peer:
            raise bad_request("malformed_body", f"the event {reported.event} requires a peer")
        now = self._clock()
        if reported.at_us > (now + CLOCKS_APART_S) * 1e6:
            raise bad_request(
                "clock_ahead",
                f"at_us = {reported.at_us} is more than {CLOCKS_APART_S} s after the gateway's clock, {int(now * 1e6)}"
                ": set the agent's clock and report again",
            )

    async def _store(self, caller: Caller, events: Sequence[ReportedEvent]) -> list[Claimed | Problem | None]:
        """One wait for all: for each event None once it is stored, the answer to a claim, or why there is none.

        A request is sent on as a whole or not at all, so that its events keep their order when it is repeated. Raises
        Problem 503 if too much is in flight to Kafka."""
        if events and self._is_flooded():
            raise too_many_in_flight()
        elapsed = asyncio.get_running_loop().time
        began = elapsed()
        begun = [
            self._presence.begin(MessagePresenceEvent(agent=caller.client, **msgspec.structs.asdict(event)))
            for event in events
        ]
        tasks = [
            asyncio.ensure_future(self._judged(event, stored) if event.event == "claimed" else stored)
            for event, stored in zip(events, begun, strict=True)
        ]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=self._timeout_s)
        finally:
            for task in tasks:
                task.cancel()
        results: list[Claimed | Problem | None] = []
        for event, stored, task in zip(events, begun, tasks, strict=True):
            if not task.done() or task.cancelled():
                results.append(Problem(503, "not_in_time", _NOT_IN_TIME))
            elif (error := task.exception()) is not None:
                if not isinstance(error, BusError):
                    raise error
                results.append(Problem(503, "kafka_error", str(error)))
            elif isinstance(state := task.result(), MessagePresenceState):
                now_ms = stored.result().appended_ms + int((elapsed() - began) * 1000)  # the broker's clock decides
                results.append(Claimed(state.is_claimed_by(caller.client, event.at_us, now_ms), state))
            else:
                results.append(None)
        return results

    async def _judged(self, event: ReportedEvent, stored: asyncio.Future[Place]) -> MessagePresenceState:
        return await self._presence.judged(event.id, await stored)


def named_message(text: str) -> str:
    """The message id in a path. Raises Problem 400."""
    message_id = decode_percent(text, "the message id")
    if not re.fullmatch(MESSAGE_ID_PATTERN, message_id):
        raise bad_request(
            "malformed_message_id",
            "a message id must have 1 to 128 letters, digits and - . _ :, and start with a letter or digit",
        )
    return message_id


def decoded(body: bytes, kind: type[T]) -> T:
    """The JSON in a body. Raises Problem 400."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise bad_request("malformed_body", f"the body is not as /openapi.json describes it: {error}") from error


def _result(result: Claimed | Problem | None) -> ReportResult:
    if isinstance(result, Problem):
        return ReportResult(stored=False, problem=result.detail)
    return ReportResult(stored=True, granted=None if result is None else result.granted)


def _check_named(caller: Caller) -> None:
    if not caller.is_known:
        raise bad_request("nameless_client", "an agent needs a name: send X-Client-Id or credentials")


def _check_may_ask(caller: Caller, message_id: str) -> None:
    reason = caller.rules.subscribe(f"{RIGHTS_TOPIC}/{message_id}")
    if reason is not ReasonCode.SUCCESS:
        raise refusal(reason)


def _check_may_tell(caller: Caller, message_id: str) -> None:
    reason = caller.rules.publish(Publish(f"{RIGHTS_TOPIC}/{message_id}", b"")).reason
    if reason is not ReasonCode.SUCCESS:
        raise refusal(reason)
