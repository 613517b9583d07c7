"""Publishing for HTTP clients: answers once Kafka has stored the message (Q1); a message with a key is stored once."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from gateway.host.host_server import HostServer
from gateway.http.identity import Caller
from gateway.http.posted_message import Posted
from gateway.http.problems import Problem, bad_request, refusal, too_many_in_flight
from gateway.shard.keyed import fingerprint
from gateway.shard.messages import Delivery, Message
from gateway.shard.shard_home import ShardHome
from mqtt.codes import ReasonCode
from schemas.http_settings import HttpSettings
from schemas.identity import derived_message_id, new_message_id


class Stored(NamedTuple):
    """`replayed`: an earlier request with the same key stored it."""

    message_id: str
    replayed: bool


class _OnWay(NamedTuple):
    content: bytes
    answer: asyncio.Future[ReasonCode]


class _AnswerLink:
    """A link for one publish: receives only its answer."""

    writable = False

    def __init__(self) -> None:
        self.answered: asyncio.Future[ReasonCode] = asyncio.get_running_loop().create_future()

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        self.answered.set_result(reason)

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        return False

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None: ...

    def complete(self, packet_id: int, reason: ReasonCode) -> None: ...

    def disconnect(self, reason: ReasonCode) -> None: ...


class HttpPublisher:
    """Publishes for all HTTP clients. A message with a key needs the client's home; one without a key does not, so any
    gateway stores it.

    The client and the key determine the message's id, permanently. Of several requests with the same key, one stores
    the message. Requests that arrive while it is in flight wait for the same answer. Later ones, also after a restart,
    are answered from the memory of the client's home (:class:`gateway.shard.keyed.KeyedMessages`).

    Where gateways share shards, a message with a key is dropped if it stands behind the fence of the next home
    (:mod:`gateway.shard.ingress_fences`). So the answer, a repeated one too, waits until it is known that this home has
    had the shard until the message was stored. If it has not, nobody is told anything: the next home is asked.
    """

    def __init__(self, server: HostServer, settings: HttpSettings) -> None:
        self._server = server
        self._home = server.home
        self._timeout_s = settings.kafka_timeout_s
        self._on_way: WeakKeyDictionary[ShardHome, dict[str, _OnWay]] = WeakKeyDictionary()

    async def publish(self, caller: Caller, posted: Posted) -> Stored:
        """Returns once Kafka has stored the message. Raises Problem: the refusal by a rule or a limit; 422 for a key
        used for another message; 503 if Kafka does not answer in time, and then the message may still be stored.
        NotAdmitted for a message with a key, if the client's home is not here."""
        if not posted.key:
            message_id = new_message_id()
            await self._answered(self._send(caller, posted, message_id), posted)
            return Stored(message_id, False)
        if not caller.is_known:
            raise bad_request(
                "nameless_client", "an Idempotency-Key needs a client name: send X-Client-Id or credentials"
            )
        message_id = derived_message_id(caller.client, posted.key)
        content = fingerprint(posted.packet.topic.encode(), posted.packet.payload)
        home = self._home.home_of(caller.client)
        keyed, on_way = home.keyed, self._on_way.setdefault(home, {})
        earlier = on_way.get(message_id) or keyed.find(message_id)
        if earlier is not None and earlier[0] != content:
            raise Problem(
                422, "idempotency_key_reused", "this Idempotency-Key was used for another message: use a new one"
            )
        if isinstance(earlier, _OnWay):
            await self._answered(earlier.answer, posted)
        elif earlier is None:
            answer = self._send(caller, posted, message_id, partial(keyed.stored, message_id, content))
            if not answer.done():
                on_way[message_id] = _OnWay(content, answer)
                answer.add_done_callback(lambda _: on_way.pop(message_id))
            await self._answered(answer, posted)
        try:
            async with asyncio.timeout(self._timeout_s):
                await home.promises.confirm()
        except TimeoutError as error:
            raise _not_confirmed(posted) from error
        return Stored(message_id, earlier is not None)

    def _send(
        self, caller: Caller, posted: Posted, message_id: str, stored: Callable[[], None] | None = None
    ) -> asyncio.Future[ReasonCode]:
        if self._server.is_flooded():
            raise too_many_in_flight()
        link = _AnswerLink()
        publisher = self._home.publisher(caller.client, link, caller.rules)
        publisher.publish(posted.packet, message_id, on_ingress=stored, receipt=posted.receipt)
        return link.answered

    async def _answered(self, answer: asyncio.Future[ReasonCode], posted: Posted) -> None:
        done, _ = await asyncio.wait([answer], timeout=self._timeout_s)  # never cancelled: others may wait too
        if not done:
            raise _not_confirmed(posted)
        if answer.result() is not ReasonCode.SUCCESS:
            raise refusal(answer.result())


def _not_confirmed(posted: Posted) -> Problem:
    retry = "send it again with the same key" if posted.key else "a retry is safe only with an Idempotency-Key"
    return Problem(503, "kafka_timeout", f"Kafka did not confirm the message in time; it may still be stored: {retry}")
