"""All clients of the demo on one event loop, which runs only during :meth:`Fleet.poll`."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from edge.link import Address
from jobs.demo.device import Device
from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.plan import Action, Connect, Disconnect, Member, Subscribe

AT_A_TIME = 40
"""How many clients make their first connection at the same time."""


class Fleet:
    """The devices of `members`; they run during :meth:`poll`, which raises DemoError if the gateway refuses one."""

    def __init__(
        self, members: Iterable[Member], address: tuple[str, int], account: Account, clock: Callable[[], float]
    ) -> None:
        self.counts = {"connected": 0, "resumed": 0, "connections_lost": 0}
        self._runner = asyncio.Runner()
        self._failures: deque[DemoError] = deque()
        self._devices = {
            member.client: Device(member, Address(*address), account, clock, self._failures.append, self.counts)
            for member in members
        }
        self._mustering = deque(self._devices.values())
        self._due: list[tuple[Device, Action]] = []

    @property
    def online(self) -> int:
        return sum(device.is_online for device in self._devices.values())

    @property
    def is_idle(self) -> bool:
        return not self._mustering and not self._due and all(device.is_idle for device in self._devices.values())

    def do(self, client: str, action: Action) -> None:
        self._due.append((self._devices[client], action))

    def muster(self) -> None:
        """Let more clients connect and subscribe for the first time, in steps; all have once :attr:`is_idle`."""
        under_way = sum(not device.is_idle for device in self._devices.values())
        while self._mustering and under_way < AT_A_TIME:
            device = self._mustering.popleft()
            self._due += ((device, Connect()), (device, Subscribe()))
            under_way += 1

    def everybody(self, action: Connect | Disconnect) -> None:
        self._due += [(device, action) for device in self._devices.values()]

    def poll(self, timeout_s: float) -> None:
        """Run the clients for `timeout_s`."""
        self._runner.run(self._go_on(timeout_s))
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        for device in self._devices.values():
            device.close()
        self._runner.close()

    async def _go_on(self, timeout_s: float) -> None:
        due, self._due = self._due, []
        for device, action in due:
            device.do(action)
        await asyncio.sleep(timeout_s)
