"""Clients that do not behave, over plain sockets; and one that does, to see whether it is served meanwhile."""

import socket
import threading
import urllib.request
from contextlib import suppress
from types import TracebackType

import psutil

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Puback, Publish, Suback, Subscribe, Subscription

PATIENCE_S = 40.0


class RawClient:
    """One socket; packets go out as they are told, and come in only when asked for."""

    def __init__(self, port: int, version: int = 5, receive_buffer: int = 0) -> None:
        self.version = version
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(1 << 24, version)
        self._received: list[Packet] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, *packets: Packet) -> "RawClient":
        return self.write(b"".join(encode(packet, self.version) for packet in packets))

    def write(self, data: bytes) -> "RawClient":
        """All of it; what a server that has closed does not take is nobody's."""
        with suppress(ConnectionError):
            self._socket.sendall(data)
        return self

    def write_what_goes(self, data: bytes, patience_s: float) -> int:
        """How much of it is taken; 0 if nothing is for so long, or the connection is gone."""
        self._socket.settimeout(patience_s)
        try:
            return self._socket.send(data)
        except OSError:
            return 0
        finally:
            self._socket.settimeout(PATIENCE_S)

    def receive(self) -> Packet | None:
        """The next packet; None at the end of the connection."""
        while not self._received:
            try:
                data = self._socket.recv(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._received += self._decoder.feed(data)
        return self._received.pop(0)

    def connect(self, client: str, clean: bool = True, keep_alive: int = 0, **properties: int) -> "RawClient":
        self.send(Connect(client, self.version, clean, keep_alive, properties=dict(properties) or None))
        connack = self.receive()
        assert isinstance(connack, Connack), connack
        assert connack.reason_code == 0, connack
        return self

    def subscribe(self, *filters: str, qos: int = 1) -> Suback:
        self.send(Subscribe(1, [Subscription(wanted, qos) for wanted in filters]))
        while True:
            packet = self.receive()
            if isinstance(packet, Suback):
                return packet
            assert packet is not None, "closed instead of SUBACK"

    def last(self) -> Packet | None:
        """The last packet before the connection ends."""
        last = None
        while (packet := self.receive()) is not None:
            last = packet
        return last


class Heart:
    """A well-behaved client that sends itself one message after the other, each once the last one has come."""

    def __init__(self, port: int) -> None:
        self.beats = 0
        self._client = RawClient(port).connect("heart")
        self._client.subscribe("heart/beat")
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="heart")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._client.send(Publish("heart/beat", b"%d" % self.beats, 1, packet_id=1))
                wanted = {Publish, Puback}
                while wanted:
                    packet = self._client.receive()
                    assert packet is not None, "the well-behaved client was closed"
                    if isinstance(packet, Publish):
                        assert packet.payload == b"%d" % self.beats
                        self._client.send(Puback(packet.packet_id))
                    wanted.discard(type(packet))
                self.beats += 1
        except BaseException as error:
            self._failed.append(error)

    def __enter__(self) -> "Heart":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self._client.close()
        if error is None:
            assert not self._failed, self._failed
            assert self.beats > 0


class Vitals:
    """What the gateway's process says of itself."""

    def __init__(self, pid: int, metrics_port: int) -> None:
        self._process = psutil.Process(pid)
        self._url = f"http://127.0.0.1:{metrics_port}/metrics"

    @property
    def memory_mb(self) -> float:
        return float(self._process.memory_info().rss) / (1 << 20)

    @property
    def open_files(self) -> int:
        return int(self._process.num_fds())

    def count(self, metric: str, reason: str) -> int:
        """The value of a counter with the label `reason`."""
        with urllib.request.urlopen(self._url, timeout=PATIENCE_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f'waystation_{metric}_total{{reason="{reason}"}}'):
                    return int(float(line.rpartition(" ")[2]))
        return 0
