"""Devices whose homes are at other gateways: what waits for them, and their receipts (M12, M15, M21, G14).

An agent asks one gateway about many devices. What waits for a device is in the spool of its shard, so the gateway asks
each other gateway about those devices that have their homes there, with the agent's own credentials. Each of them
checks the agent's rights and says who carries for its devices.

* *Receipts* are taken by all gateways at once. If one does not answer, its receipts are to be brought again: `later`.
* *What waits* is read at one gateway after the other, until one gives something; the answer says that there is more. So
  an answer is no larger than that of a gateway alone. Another gateway is first each time. A device whose gateway does
  not answer is refused, with the reason; agents ask again.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from bundles import receipt as receipt_format
from bundles.errors import BundleError
from gateway.errors import HomeUnreachable
from gateway.host.host_server import HostServer
from gateway.http.bundles_handler import BundlesHandler
from gateway.http.forwarding import Forwarding, is_from_member
from gateway.http.identity import Caller, Origin
from gateway.http.message_presence_handler import decoded
from schemas.mesh_api import ReceiptResult, ReceiptsAnswer, ReceiptsRequest, WaitingAnswer, WaitingRequest
from schemas.mesh_settings import MeshSettings
from schemas.undecodable import UNDECODABLE

_HERE: Final = ""
_FURTHER_BYTES: Final = 4 << 20
"""For certificates and the rest of an answer."""

_T = TypeVar("_T")


class Asked:
    """An agent's request, as it came."""

    def __init__(self, request: web.BaseRequest, caller: Caller, origin: Origin) -> None:
        self.request, self.caller, self.origin = request, caller, origin


class BundlesElsewhere:
    """Handles requests at the gateway that an agent asks; `handler` does this gateway's part."""

    def __init__(self, handler: BundlesHandler, forwarding: Forwarding, hosts: HostServer, mesh: MeshSettings) -> None:
        self._handler, self._forwarding, self._hosts = handler, forwarding, hosts
        self._answer_bytes = 4 * (mesh.waiting_bytes + hosts.limits.packet_bytes) + _FURTHER_BYTES
        self._turn = count()

    async def take_receipts(self, asked: Asked, body: bytes) -> ReceiptsAnswer:
        """As :meth:`BundlesHandler.take_receipts`."""
        if not self._asks_others(asked):
            return await self._handler.take_receipts(asked.caller, body)
        request = decoded(body, ReceiptsRequest)
        by_gateway = self._by_gateway((number, _signer(raw)) for number, raw in enumerate(request.receipts))
        if not by_gateway.keys() - {_HERE}:
            return await self._handler.take_receipts(asked.caller, body)
        parts = [(gateway, [number for number, _ in part], part[0][1]) for gateway, part in by_gateway.items()]
        answers = await asyncio.gather(
            *(self._receipts_at(gateway, asked, client, request, numbers) for gateway, numbers, client in parts)
        )
        found: dict[int, ReceiptResult] = {}
        for (_, numbers, _), results in zip(parts, answers, strict=True):
            found |= zip(numbers, results, strict=True)
        return ReceiptsAnswer([found[number] for number in range(len(request.receipts))])

    async def give_waiting(self, asked: Asked, body: bytes) -> WaitingAnswer:
        """As :meth:`BundlesHandler.give_waiting`."""
        if not self._asks_others(asked):
            return await self._handler.give_waiting(asked.caller, body)
        request = decoded(body, WaitingRequest)
        by_gateway = self._by_gateway((device, device) for device in request.devices)
        if not by_gateway.keys() - {_HERE}:
            return await self._handler.give_waiting(asked.caller, body)
        order = sorted(by_gateway)
        first = next(self._turn) % len(order)
        whole = WaitingAnswer([], [], {}, more=False, refused={})
        for gateway in order[first:] + order[:first]:
            if whole.bundles:
                return msgspec.structs.replace(whole, more=True)
            devices = {device: request.devices[device] for device, _ in by_gateway[gateway]}
            answer = await self._waiting_at(gateway, asked, devices)
            whole = WaitingAnswer(
                answer.bundles,
                answer.certificates,
                {**whole.positions, **answer.positions},
                whole.more or answer.more,
                {**whole.refused, **answer.refused},
            )
        return whole

    async def _receipts_at(
        self, gateway: str, asked: Asked, client: str, request: ReceiptsRequest, numbers: Sequence[int]
    ) -> list[ReceiptResult]:
        part = msgspec.json.encode(ReceiptsRequest([request.receipts[n] for n in numbers], request.certificates))
        if gateway == _HERE:
            return (await self._handler.take_receipts(asked.caller, part)).results
        try:
            results = (await self._ask(asked, client, part, ReceiptsAnswer)).results
            if len(results) != len(numbers):
                raise HomeUnreachable(f"{gateway} answers {len(numbers)} receipts with {len(results)} results")
        except HomeUnreachable as error:
            return [ReceiptResult("later", str(error)) for _ in numbers]
        return results

    async def _waiting_at(self, gateway: str, asked: Asked, devices: Mapping[str, int]) -> WaitingAnswer:
        part = msgspec.json.encode(WaitingRequest(dict(devices)))
        if gateway == _HERE:
            return await self._handler.give_waiting(asked.caller, part)
        try:
            return await self._ask(asked, next(iter(devices)), part, WaitingAnswer)
        except HomeUnreachable as error:
            return WaitingAnswer([], [], {}, more=False, refused=dict.fromkeys(devices, str(error)))

    async def _ask(self, asked: Asked, client: str, part: bytes, kind: type[_T]) -> _T:
        """Raises HomeUnreachable for whatever is not the answer that is meant."""
        answer = await self._forwarding.part(asked.request, asked.origin, client, part, self._answer_bytes)
        if answer is None:
            raise HomeUnreachable("the device's home has just changed: ask again")
        status, body = answer
        if status != 200:
            raise HomeUnreachable(f"the gateway that has the device's home says {status}: ask again")
        try:
            return msgspec.json.decode(body, type=kind)
        except UNDECODABLE as error:
            raise HomeUnreachable(f"the gateway that has the device's home gives no answer: {error}") from error

    def _asks_others(self, asked: Asked) -> bool:
        """What another gateway asks is answered for this one alone."""
        return self._hosts.relays is not None and not is_from_member(asked.request)

    def _by_gateway(self, clients: Iterable[tuple[_T, str]]) -> dict[str, list[tuple[_T, str]]]:
        """By the gateway that has the client's home: something, and the client."""
        found: dict[str, list[tuple[_T, str]]] = {}
        for item, client in clients:
            gateway = None if self._hosts.relays is None else self._hosts.relays.calls.gateway_of(client)
            found.setdefault(gateway or _HERE, []).append((item, client))
        return found


def _signer(raw: bytes) -> str:
    """Whose receipt it says it is; "" for what is none, which this gateway refuses."""
    try:
        return receipt_format.decode(raw).signer
    except BundleError:
        return ""
