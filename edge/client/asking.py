"""Asks others, and waits for their replies (MQTT 5.0, 4.10; R6)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, NamedTuple

from edge.client.errors import NoReply, NotReceived
from edge.client.message import IncomingMessage, Message, Receipt
from edge.client.options import RequestOptions
from edge.client.requests import Request, Requests
from schemas.errors import WaystationError
from schemas.receipts import RECEIPT_PROPERTY, ReceiptKind
from schemas.repeated_requests import repeated

_log: Final = logging.getLogger("waystation.client")


class Question(NamedTuple):
    """What is asked, and where. `user_properties` are those of `options`, which may be read only once."""

    topic: str
    payload: bytes | str
    options: RequestOptions
    user_properties: list[tuple[str, str]]

    @classmethod
    def of(cls, topic: str, payload: bytes | str, options: RequestOptions) -> "Question":
        return cls(topic, payload, options, list(options.get("user_properties", ())))


class Asking:
    """`open_inbox` gives where replies are to go, once they arrive here; `publish` is that of the client."""

    def __init__(
        self,
        requests: Requests,
        open_inbox: Callable[[], Awaitable[str]],
        publish: Callable[..., Awaitable[Message]],
    ) -> None:
        self._requests, self._open_inbox, self._publish = requests, open_inbox, publish

    async def one(self, question: Question, timeout_s: float, again_after_s: float) -> IncomingMessage:
        """The first reply. See :meth:`edge.client.client.Client.request`."""
        until, repeating = asyncio.get_running_loop().time() + timeout_s, None
        with self._requests.begin("failed") as request:
            try:
                async with asyncio.timeout_at(until):
                    message = await self._ask(request, question, timeout_s)
                    if again_after_s < timeout_s:
                        repeating = asyncio.create_task(self._repeat(request, question, message, until, again_after_s))
                    answer = await request.answer()
            except TimeoutError:
                raise NoReply(f"no reply from {question.topic!r} within {timeout_s:g} s") from None
            finally:
                if repeating is not None:
                    repeating.cancel()
        if isinstance(answer, Receipt):
            raise _not_received(answer)
        answer.acknowledge()
        return answer

    async def all(self, question: Question, timeout_s: float) -> AsyncGenerator[IncomingMessage, None]:
        """See :meth:`edge.client.client.Client.request_all`."""
        until, replies, receivers = asyncio.get_running_loop().time() + timeout_s, 0, None
        with self._requests.begin("completed") as request:
            try:
                async with asyncio.timeout_at(until):
                    await self._ask(request, question, timeout_s)
                while receivers is None or replies < receivers:
                    async with asyncio.timeout_at(until):
                        answer = await request.answer()
                    if isinstance(answer, Receipt):
                        receivers = answer.recipients
                        if not receivers:
                            raise _not_received(answer)
                    else:
                        replies += 1
                        answer.acknowledge()
                        yield answer
            except TimeoutError:
                return

    async def _ask(self, request: Request, question: Question, timeout_s: float) -> Message:
        pairs = _with_receipt(question.user_properties, request.receipt)
        message = await self._send(request, question, timeout_s, pairs)
        request.sent(message)
        return message

    async def _repeat(
        self, request: Request, question: Question, message: Message, until: float, again_after_s: float
    ) -> None:
        """Sends it again and again, each time `again_after_s` after the gateway has the last one: while no gateway is
        reachable, copies would only pile up."""
        now, pairs = asyncio.get_running_loop().time, repeated(question.user_properties)
        try:
            while True:
                await message.acknowledged
                await asyncio.sleep(again_after_s)
                message = await self._send(request, question, until - now(), pairs)
        except WaystationError as error:  # the first one may still be answered
            _log.warning("the request to %r is not sent again: %s", question.topic, error)

    async def _send(
        self, request: Request, question: Question, lifetime_s: float, pairs: list[tuple[str, str]]
    ) -> Message:
        fields: dict[str, Any] = {**question.options, "user_properties": pairs}
        inbox, correlation = await self._open_inbox(), request.correlation
        return await self._publish(
            question.topic,
            question.payload,
            lifetime_s=lifetime_s,
            response_topic=inbox,
            correlation=correlation,
            **fields,
        )


def _with_receipt(pairs: list[tuple[str, str]], receipt: ReceiptKind) -> list[tuple[str, str]]:
    """The user properties of a request: it asks for a receipt, unless the application does."""
    return pairs if any(name == RECEIPT_PROPERTY for name, _ in pairs) else [*pairs, (RECEIPT_PROPERTY, receipt)]


def _not_received(receipt: Receipt) -> NotReceived:
    words = ", ".join(f"{outcome}: {count}" for outcome, count in receipt.outcomes.items())
    return NotReceived(f"nobody has got the request ({words or 'nobody wanted it'})")
