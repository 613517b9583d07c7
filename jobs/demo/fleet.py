"""All clients of the demo on one selectors loop in one thread, through paho-mqtt's interface for external loops."""

import selectors
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from jobs.demo.device import Device, Phase
from jobs.demo.expectations import Account
from jobs.demo.plan import Action, Connect, Disconnect, Member, Subscribe

KEEP_ALIVE_CHECK_S = 1.0
RETRY_S = 0.5
AT_A_TIME = 40
"""How many clients make their first connection at the same time."""


class Fleet:
    """The devices of `members`; things happen in :meth:`poll`, which raises DemoError when the gateway refuses one."""

    def __init__(
        self, members: Iterable[Member], address: tuple[str, int], account: Account, clock: Callable[[], float]
    ) -> None:
        self.counts = {"connected": 0, "resumed": 0, "connections_lost": 0}
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._devices = {
            member.client: Device(member, address, account, clock, self, self.counts) for member in members
        }
        self._ready: set[Device] = set()
        self._with_output: set[Device] = set()
        self._watched: set[Any] = set()
        self._retries: deque[tuple[float, Device]] = deque()
        self._checked_at = clock()
        self._mustering = deque(self._devices.values())

    @property
    def online(self) -> int:
        return sum(device.phase is Phase.ONLINE for device in self._devices.values())

    @property
    def is_idle(self) -> bool:
        return not self._mustering and all(device.is_idle for device in self._devices.values())

    def do(self, client: str, action: Action) -> None:
        self._devices[client].do(action)

    def muster(self) -> None:
        """Have more clients connect and subscribe for the first time, in steps; all have once :attr:`is_idle`."""
        under_way = sum(not device.is_idle for device in self._devices.values())
        while self._mustering and under_way < AT_A_TIME:
            device = self._mustering.popleft()
            device.do(Connect())
            device.do(Subscribe())
            under_way += 1

    def everybody(self, action: Connect | Disconnect) -> None:
        for device in self._devices.values():
            device.do(action)

    def poll(self, timeout_s: float) -> None:
        """Do what is due; wait at most this long for something to come."""
        now = self._clock()
        while self._retries and self._retries[0][0] <= now:
            self._ready.add(self._retries.popleft()[1])
        self._flush()
        for key, mask in self._selector.select(timeout_s):
            device: Device = key.data
            if mask & selectors.EVENT_READ:
                device.read()
            if mask & selectors.EVENT_WRITE:
                device.write()
        self._flush()
        if now - self._checked_at >= KEEP_ALIVE_CHECK_S:
            self._checked_at = now
            for device in self._devices.values():
                device.keep_alive()

    def close(self) -> None:
        for device in self._devices.values():
            device.close()
        self._selector.close()

    def _flush(self) -> None:
        while self._ready or self._with_output:
            while self._ready:
                self._ready.pop().advance()
            while self._with_output:
                device = self._with_output.pop()
                if device.write() and (sock := device.socket) is not None:
                    self._selector.modify(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, device)
                    self._watched.add(sock)

    # -- what devices ask (device.Loop) --------------------------------------------------------------------------------

    def opened(self, device: Device, sock: Any) -> None:
        self._selector.register(sock, selectors.EVENT_READ, device)

    def closed(self, device: Device, sock: Any) -> None:
        self._with_output.discard(device)
        self._watched.discard(sock)
        self._selector.unregister(sock)

    def has_output(self, device: Device) -> None:
        self._with_output.add(device)

    def output_done(self, device: Device, sock: Any) -> None:
        if sock in self._watched:
            self._watched.discard(sock)
            self._selector.modify(sock, selectors.EVENT_READ, device)

    def ready(self, device: Device) -> None:
        self._ready.add(device)

    def retry(self, device: Device) -> None:
        self._retries.append((self._clock() + RETRY_S, device))
