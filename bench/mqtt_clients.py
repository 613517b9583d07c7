"""MQTT clients that load a gateway, as light as Python allows: packets of one length, encoded once; acknowledgements
are found by position. They are not the client of `edge`, which takes some twenty times the processor's time for a
message: a gateway cannot be loaded with that on the machine it runs on. And the least that a server can be."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from mqtt.codes import PacketType
from mqtt.encode import encode, encode_puback, encode_pubcomp, encode_publish, encode_pubrec
from mqtt.packets import Connect

VERSION = 4
PAYLOAD = b"x" * 256
_ACKNOWLEDGEMENT_BYTES = 4
_CONNECTING_AT_ONCE = 50


class Client(asyncio.Protocol):
    """Takes whatever comes for the answer if it has asked, and hands it to `take` if not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transport: Any = None
        self._answer: asyncio.Future[None] | None = None
        self._partial = b""

    async def ask(self, data: bytes) -> None:
        """Sends a packet and waits for the one that answers it."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        async with asyncio.timeout(60):
            await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set_result(None)
            return
        if self._partial:
            data = self._partial + data
        self._partial = data[self.take(data) :]

    def take(self, data: bytes) -> int:
        """Handles the whole packets in `data`; returns how many bytes they are. Here nothing is looked at."""
        return len(data)


class Publisher(Client):
    """Keeps `window` PUBLISH of QoS 1 in flight: each PUBACK lets the next one go, with the same packet id."""

    def __init__(self, name: str, window: int) -> None:
        super().__init__(name)
        topic = f"bench/in/{name}".encode()
        self.packets = {
            number.to_bytes(2): encode_publish(topic, PAYLOAD, 1, False, False, number, None)
            for number in range(1, window + 1)
        }
        self.acknowledged = 0

    def take(self, data: bytes) -> int:
        packets = self.packets
        again = [packets[data[at + 2 : at + 4]] for at in range(0, len(data) - 3, 4)]
        self.acknowledged += len(again)
        self.transport.write(b"".join(again))
        return len(again) * 4


class Counter:
    """What several subscribers got together."""

    def __init__(self) -> None:
        self.got = 0


class Subscriber(Client):
    """Acknowledges each PUBLISH of QoS 1 to `topic`; all of them have one length. It subscribes to `topic_filter`, by
    default the topic itself."""

    def __init__(self, name: str, topic: str, counter: Counter, topic_filter: str | None = None) -> None:
        super().__init__(name)
        self.topic_filter = topic_filter or topic
        packet = encode_publish(topic.encode(), PAYLOAD, 1, False, False, 1, None)
        self._length = len(packet)
        self._id_at = self._length - len(PAYLOAD) - 2
        self._counter = counter

    def take(self, data: bytes) -> int:
        length, at = self._length, self._id_at
        count = len(data) // length
        answers = [b"\x40\x02" + data[start + at : start + at + 2] for start in range(0, count * length, length)]
        self.transport.write(b"".join(answers))
        self._counter.got += count
        return count * length


class Member(Client):
    """A member of a share group: completes each exchange of this `qos`, 1 or 2, and adds to `took_ms` how old each
    PUBLISH is when it comes. A payload begins with when it was sent, ns of the monotonic clock."""

    STAMP_BYTES = 8

    def __init__(self, name: str, topic: str, qos: int, took_ms: list[float]) -> None:
        super().__init__(name)
        self._length = len(encode_publish(topic.encode(), PAYLOAD, qos, False, False, 1, None))
        self._encode_answer = encode_puback if qos == 1 else encode_pubrec
        self._took_ms = took_ms

    def take(self, data: bytes) -> int:
        now_ns, at, answers = time.monotonic_ns(), 0, []
        while at < len(data):
            is_publish = data[at] >> 4 == PacketType.PUBLISH
            end = at + (self._length if is_publish else _ACKNOWLEDGEMENT_BYTES)
            if len(data) < end:
                break
            if is_publish:
                begins = end - len(PAYLOAD)
                sent_ns = int.from_bytes(data[begins : begins + self.STAMP_BYTES])
                self._took_ms.append((now_ns - sent_ns) / 1e6)
                answers.append(self._encode_answer(int.from_bytes(data[begins - 2 : begins])))
            else:
                answers.append(encode_pubcomp(int.from_bytes(data[at + 2 : end])))
            at = end
        self.transport.write(b"".join(answers))
        return at


class Quiet(Client):
    """Sends one PUBLISH at a time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._packet = encode_publish(f"bench/quiet/{name}".encode(), PAYLOAD, 1, False, False, 1, None)

    async def send(self) -> float:
        """Milliseconds until PUBACK."""
        began = time.perf_counter()
        await self.ask(self._packet)
        return (time.perf_counter() - began) * 1000


async def connect_all(port: int, clients: Sequence[Client], clean_start: bool = True) -> None:
    """Connects and waits for CONNACK, some at a time. Without `clean_start` sessions are persistent."""
    loop, turn = asyncio.get_running_loop(), asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def connect(client: Client) -> None:
        async with turn:
            await loop.create_connection(lambda: client, "127.0.0.1", port)
            await client.ask(encode(Connect(client.name, version=VERSION, clean_start=clean_start), VERSION))

    await asyncio.gather(*map(connect, clients))


class _Answering(asyncio.Protocol):
    """A server that accepts every CONNECT and acknowledges every PUBLISH, all of one length, and does nothing else."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._is_connected = False
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._is_connected:
            self._is_connected = True
            self._transport.write(b"\x20\x02\0\0")
            return
        data = self._partial + data
        length, at, answers = 0, 0, []
        while len(data) - at > 2:
            length = 3 + (data[at + 1] & 127) + (data[at + 2] << 7)
            if len(data) - at < length:
                break
            stop = at + length - len(PAYLOAD)
            answers.append(b"\x40\x02" + data[stop - 2 : stop])
            at += length
        self._partial = data[at:]
        self._transport.write(b"".join(answers))


def serve_answers(ready: Any) -> None:
    """Runs that server on a free port, which it sends to the connection `ready`."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(serve())
