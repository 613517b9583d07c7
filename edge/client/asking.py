"""Asks others, and waits for their replies (MQTT 5.0, 4.10; R6)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

from edge.client.errors import NoReply, NotReceived
from edge.client.message import IncomingMessage, Message, Receipt
from edge.client.options import RequestOptions
from edge.client.requests import Request, Requests
from schemas.receipts import RECEIPT_PROPERTY, ReceiptKind


class Asking:
    """`open_inbox` gives where replies are to go, once they arrive here; `publish` is that of the client."""

    def __init__(
        self,
        requests: Requests,
        open_inbox: Callable[[], Awaitable[str]],
        publish: Callable[..., Awaitable[Message]],
    ) -> None:
        self._requests, self._open_inbox, self._publish = requests, open_inbox, publish

    async def one(self, topic: str, payload: bytes | str, timeout_s: float, options: RequestOptions) -> IncomingMessage:
        """The first reply. See :meth:`edge.client.client.Client.request`."""
        with self._requests.begin("failed") as request:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._send(request, topic, payload, timeout_s, options)
                    answer = await request.answer()
            except TimeoutError:
                raise NoReply(f"no reply from {topic!r} within {timeout_s:g} s") from None
        if isinstance(answer, Receipt):
            raise _not_received(answer)
        answer.acknowledge()
        return answer

    async def all(
        self, topic: str, payload: bytes | str, timeout_s: float, options: RequestOptions
    ) -> AsyncGenerator[IncomingMessage, None]:
        """See :meth:`edge.client.client.Client.request_all`."""
        until, replies, receivers = asyncio.get_running_loop().time() + timeout_s, 0, None
        with self._requests.begin("completed") as request:
            try:
                async with asyncio.timeout_at(until):
                    await self._send(request, topic, payload, timeout_s, options)
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

    async def _send(
        self, request: Request, topic: str, payload: bytes | str, timeout_s: float, options: RequestOptions
    ) -> None:
        fields: dict[str, Any] = dict(options)
        fields["user_properties"] = _with_receipt(options.get("user_properties", ()), request.receipt)
        inbox, correlation = await self._open_inbox(), request.correlation
        message = await self._publish(
            topic, payload, lifetime_s=timeout_s, response_topic=inbox, correlation=correlation, **fields
        )
        request.sent(message)


def _with_receipt(user_properties: Iterable[tuple[str, str]], receipt: ReceiptKind) -> list[tuple[str, str]]:
    """Those of a request: it asks for a receipt, unless the application does."""
    pairs = list(user_properties)
    return pairs if any(name == RECEIPT_PROPERTY for name, _ in pairs) else [*pairs, (RECEIPT_PROPERTY, receipt)]


def _not_received(receipt: Receipt) -> NotReceived:
    words = ", ".join(f"{outcome}: {count}" for outcome, count in receipt.outcomes.items())
    return NotReceived(f"nobody has got the request ({words or 'nobody wanted it'})")
