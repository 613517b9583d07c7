"""How many clients keep their connection when all shards move between gateways of one machine (R5)."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from harness.gateway_site import Site
from harness.processes import HOST
from mqtt.codes import VERSION_5
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Pingreq, Pingresp

CLIENTS: Final = 1_000
AT_ONCE: Final = 100
ANSWER_S: Final = 20.0
EXPIRY_S: Final = 3_600

T = TypeVar("T")


class _Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: Decoder

    async def ask(self, packet: Packet) -> Packet | None:
        """The first packet that answers; None if the connection ends before."""
        try:
            self.writer.write(encode(packet, VERSION_5))
            async with asyncio.timeout(ANSWER_S):
                while data := await self.reader.read(1 << 16):
                    if packets := self.decoder.feed(data):
                        return packets[0]
        except (OSError, TimeoutError):
            pass
        return None


async def connections_kept(site: Site, count: int = CLIENTS) -> int:
    """Of so many clients with lasting sessions, each at its home, over plain TCP: those that are answered on the same
    connection after each shard has moved once. Raises RuntimeError if not all get in."""
    clients: list[_Client] = []
    for names in _some([f"kept-{number}" for number in range(count)]):
        clients += await asyncio.gather(*(_open(site, name) for name in names))
    for shard in range(site.shards):
        owner = site.owner(shard)
        to = next(gateway for gateway in site.up if gateway is not owner)
        await asyncio.to_thread(site.moved, shard, to.gateway_name)
    answers: list[Packet | None] = []
    for some in _some(clients):
        answers += await asyncio.gather(*(client.ask(Pingreq()) for client in some))
    for client in clients:
        client.writer.close()
    return sum(isinstance(answer, Pingresp) for answer in answers)


async def _open(site: Site, name: str) -> _Client:
    reader, writer = await asyncio.open_connection(HOST, site.owner_of(name).mqtt)
    client = _Client(reader, writer, Decoder(1 << 20, VERSION_5))
    connect = Connect(name, VERSION_5, True, 0, properties={"session_expiry_interval": EXPIRY_S})
    if not isinstance(await client.ask(connect), Connack):
        raise RuntimeError(f"{name} does not get in")
    return client


def _some(all_of_them: Sequence[T]) -> Iterable[Sequence[T]]:
    return (all_of_them[start : start + AT_ONCE] for start in range(0, len(all_of_them), AT_ONCE))
