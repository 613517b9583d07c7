"""The day of the mesh's demo, replayed: uplinks are cut, aircraft come and go, agents are given messages, and what
arrives is counted (M18)."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from edge.agent.way import Step
from edge.client.client import Client
from jobs.demo.errors import DemoError
from jobs.demo.forwarder import Target
from jobs.demo.mesh_account import Accepted, MeshAccount
from jobs.demo.mesh_agent_calls import AgentCalls
from jobs.demo.mesh_agents import MeshFiles
from jobs.demo.mesh_hosts import Hosts
from jobs.demo.mesh_network import Network
from jobs.demo.mesh_plan import TOPIC, Arrive, Leave, MeshPlan, Send, agent_of

SUBSCRIBER: Final = "demo-notes"
LOOK_S: Final = 0.05
"""Between two looks into the folders where messages arrive."""
CONNECTED_S: Final = 60.0
VISIT_S: Final = 0.7
"""How long aircraft stand somewhere the day before, once they have linked."""
VISIT_MOST_S: Final = 10.0
LEFT_S: Final = 0.3
"""How long they are in the air then."""
PATIENCE_S: Final = 45.0
"""How long to wait, at the end of the day, while nothing more arrives."""
LATE_S: Final = 3.0
"""How long to wait for second copies once all has arrived."""

Watch = Callable[[datetime], None]


class Pace:
    """The time of the flight plan: `begin` until :meth:`start`, then `speed` times as fast as the clock."""

    def __init__(self, begin: datetime, speed: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._begin, self.speed, self._clock = begin, speed, clock
        self._since: float | None = None

    def start(self) -> None:
        """Now it is `begin`."""
        self._since = self._clock()

    @property
    def now(self) -> datetime:
        if self._since is None:
            return self._begin
        return self._begin + timedelta(seconds=(self._clock() - self._since) * self.speed)

    def until_s(self, at: datetime) -> float:
        """Seconds of the clock until `at`; below 0: it has passed."""
        return (at - self.now).total_seconds() / self.speed


class Outcome(NamedTuple):
    """What the agents say at the end: their logs by client id, and their statuses by place."""

    logs: dict[str, list[Step]]
    statuses: dict[str, dict[str, Any]]


class MeshDay:
    """`network` must be open. `watch` is called with the time, often."""

    def __init__(
        self,
        plan: MeshPlan,
        files: MeshFiles,
        network: Network,
        hosts: Hosts,
        account: MeshAccount,
        pace: Pace,
        watch: Watch,
    ) -> None:
        self._plan, self._files, self._network, self._hosts = plan, files, network, hosts
        self._account, self._pace, self._watch = account, pace, watch
        self._calls = AgentCalls(files)
        self._sending: set[asyncio.Task[None]] = set()
        self.settled_s = 0.0

    async def run(self, gateway: Target, act: Callable[[str], None]) -> Outcome:
        """`act` is told what is going on. Raises DemoError."""
        plan = self._plan
        try:
            async with self._subscribed(gateway) as watching:
                act("airports connect")
                await self._airports_connected(watching)
                act("the day before: aircraft visit the airports")
                await self._get_acquainted(watching)
                self._pace.start()
                act(f"the day at {self._pace.speed:g} times its speed")
                await self._play(watching)
                played = time.monotonic()
                act("all uplinks are back")
                await self._settle(watching)
                self.settled_s = time.monotonic() - played
                places = [*plan.airports, *plan.aircraft]
                return Outcome(await self._calls.logs(places), await self._calls.statuses(places))
        finally:
            for task in self._sending:
                task.cancel()
            self._calls.close()

    @contextlib.asynccontextmanager
    async def _subscribed(self, gateway: Target) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Counts what arrives meanwhile: at the platform, and in the folders of the airports' agents."""
        host, port = gateway
        async with Client(client_id=SUBSCRIBER, connect_points=[f"mqtt://{host}:{port}"]) as client:
            await client.subscribe(f"{TOPIC}/#", qos=2)
            tasks = [asyncio.create_task(self._read_topic(client)), asyncio.create_task(self._read_folders())]
            try:
                yield tasks
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _airports_connected(self, watching: list[asyncio.Task[None]]) -> None:
        until = time.monotonic() + CONNECTED_S
        waiting = list(self._plan.airports)
        while waiting:
            statuses = await self._calls.statuses(waiting)
            waiting = [place for place, status in statuses.items() if not is_reachable(status)]
            if waiting and time.monotonic() > until:
                found = statuses[waiting[0]]
                raise DemoError(f"{agent_of(waiting[0])} has not reached the platform in {CONNECTED_S:.0f} s: {found}")
            await self._pause(0.2, watching)

    async def _get_acquainted(self, watching: list[asyncio.Task[None]]) -> None:
        """A message to an agent is sealed to the key in its certificate, and certificates travel with aircraft. So some
        have been everywhere before: one from each airport goes to the same airport, and back."""
        airports = self._plan.airports
        visitors = dict(zip(self._plan.aircraft, airports, strict=False))
        for hub in ("", airports[0], airports[0], ""):
            for aircraft, airport in visitors.items():
                self._network.do(Arrive(aircraft, hub or airport))
            until = time.monotonic() + VISIT_MOST_S
            while time.monotonic() < until:
                peers = await asyncio.gather(*(self._calls.peers(aircraft) for aircraft in visitors))
                if all(peers):
                    break
                await self._pause(LOOK_S, watching)
            await self._pause(VISIT_S, watching)
            for aircraft, airport in visitors.items():
                self._network.do(Leave(aircraft, hub or airport))
            await self._pause(LEFT_S, watching)

    async def _play(self, watching: list[asyncio.Task[None]]) -> None:
        for at, action in self._plan.steps:
            while (left_s := self._pace.until_s(at)) > 0:
                await self._pause(min(left_s, LOOK_S), watching)
            if isinstance(action, Send):
                task = asyncio.create_task(self._send(action))
                self._sending.add(task)
                task.add_done_callback(self._sent)
            else:
                self._network.do(action)
        while (left_s := self._pace.until_s(self._plan.end)) > 0:
            await self._pause(min(left_s, LOOK_S), watching)

    async def _settle(self, watching: list[asyncio.Task[None]]) -> None:
        """Until everything has arrived, or nothing more has for a while."""
        least, advanced_at, complete_at = None, time.monotonic(), None
        while True:
            left = len(self._account.missing()) + len(self._sending)
            now = time.monotonic()
            if least is None or left < least:
                least, advanced_at = left, now
            complete_at = None if left else (complete_at or now)
            if (complete_at is not None and now - complete_at > LATE_S) or now - advanced_at > PATIENCE_S:
                return
            await self._pause(LOOK_S, watching)

    async def _pause(self, seconds: float, watching: list[asyncio.Task[None]]) -> None:
        """Raises what has gone wrong meanwhile."""
        await asyncio.sleep(seconds)
        self._watch(self._pace.now)
        self._hosts.check()
        for task in (*watching, *self._sending):
            if task.done():
                task.result()

    async def _send(self, send: Send) -> None:
        to = f"@{agent_of(send.to)}" if send.to else f"{TOPIC}/{send.sender}"
        text = json.dumps({"number": send.number, "from": send.sender, "at": f"{self._pace.now:%Y-%m-%dT%H:%MZ}"})
        message_id = await self._calls.send(send.sender, to, f"note-{send.number}", text)
        self._account.accept(Accepted(send.number, send.sender, send.to, message_id, self._pace.now))

    def _sent(self, task: "asyncio.Task[None]") -> None:
        """One that has failed stays, for :meth:`_pause` to raise its error."""
        if task.cancelled() or task.exception() is None:
            self._sending.discard(task)

    async def _read_topic(self, client: Client) -> None:
        async for message in client.messages():
            self._arrived("", message.payload)

    async def _read_folders(self) -> None:
        """The application at each airport: takes the files out of the folder."""
        folders = {place: self._files.inbox(place) for place in self._plan.airports}
        while True:
            for place, folder in folders.items():
                for path in folder.iterdir():
                    if not path.name.startswith("."):
                        self._arrived(place, path.read_bytes())
                        path.unlink()
            await asyncio.sleep(LOOK_S)

    def _arrived(self, place: str, payload: bytes) -> None:
        self._account.arrive(int(json.loads(payload)["number"]), place, self._pace.now)


def is_reachable(status: dict[str, Any]) -> bool:
    """Whether an airport's agent has reached the platform both ways: over MQTT and by its bearer."""
    return bool(status.get("connected")) and bool(status.get("uplink", {}).get("is_up"))
