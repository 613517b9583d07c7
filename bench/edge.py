"""The edge: what an agent accepts, drains and costs, how long a client takes to come back, and the access point.

Real processes: a broker, one gateway (no router, no ledger: a message that Kafka has is acknowledged) and one agent.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Final

import uvloop

from bench.edge_agent import TOPIC, AgentProcess
from bench.edge_load import asked_ms, bare_access_point, memory_client_s, submitted_per_s, syncs_per_s
from bench.figures import Figures
from bench.gateway import environment_of
from bench.processes import fresh_directory
from edge.client.client import Client
from edge.client.message import Message
from harness.processes import HOST, LOG_TAIL, START_S, NotReadyError, Program
from jobs.stack.ports import Ports
from jobs.stack.topics import admin_client, create_topics, declared_topics
from schemas.readiness import read_ready
from schemas.settings import process_settings

BACKLOG, SMALL_BYTES = 100_000, 256
LARGE, LARGE_BYTES = 1_500, 100_000
"""150 MB: nanomq#1980 reports a bridge that sends one stored message each five seconds, so such a backlog never ends.
"""
MEMORY_MESSAGES: Final = 20_000
CONNECTIONS: Final = 40
TURNS: Final = 3
CONNECT_RATE: Final = 200.0
RESTARTS: Final = 3
IDLE_S: Final = 40.0
"""In which an agent at the aim takes 0.4 s of processor time; it is measured in hundredths."""
DRAIN_TIMEOUT_S: Final = 300.0
CONNECTED_TIMEOUT_S: Final = 120.0
PROGRESS_S: Final = 10.0
_POLL_S: Final = 0.05
_READY_POLL_S: Final = 0.005


class EdgeBench:
    """Measures over one broker. `scale`: in so many times the usual time."""

    def __init__(self, bootstrap: str, figures: Figures, scale: float) -> None:
        self._bootstrap, self._figures, self._scale = bootstrap, figures, scale

    def run(self) -> None:
        """Records all figures of the edge."""
        with fresh_directory() as data:
            ports = Ports(data)
            self._port = ports.choose("mqtt", HOST, 0, "")
            self._smtp_port = ports.choose("smtp", HOST, 0, "")
            self._gateway = self._new_gateway(data)
            self.backlog("", "small", BACKLOG, SMALL_BYTES)
            self.backlog("_large", "large", LARGE, LARGE_BYTES)
            with self._gateway.running():
                self.store_and_idle()
            self.reconnect()

    def _new_gateway(self, data: Path) -> Program:
        """A gateway on a port that stays the same over its restarts."""
        environment = environment_of(data, self._bootstrap) | {"WAYSTATION_GATEWAY__MQTT_PORT": str(self._port)}
        create_topics(admin_client(self._bootstrap, {}), declared_topics(process_settings(environment)))
        return Program(data, "gateway", "gateway", environ=environment)

    @contextmanager
    def _agent(self, messages: int = 0, payload_bytes: int = 0) -> Iterator[AgentProcess]:
        with fresh_directory() as directory:
            agent = AgentProcess(directory, self._port, self._smtp_port)
            if messages:
                agent.fill(messages, payload_bytes)
            with agent.running():
                yield agent

    # -- measurements --------------------------------------------------------------------------------------------------

    def backlog(self, suffix: str, name: str, messages: int, payload_bytes: int) -> None:
        """An agent starts with a backlog while no gateway is there; then one comes.

        Records `agent_start_<name>_s`, `…_rss_mb`, and `…_vs_empty`, relative to a start just before with nothing;
        `agent_drain<suffix>_per_s`, `…_per_cpu_s` (of the agent's process), `…_mb_per_s`, `…_rss_mb` (the most
        meanwhile); `agent_drained<suffix>_rss_mb` (afterwards).
        After the small ones, of a client without a disk: `client_memory_per_s`, `client_memory_per_cpu_s`; and by these
        `agent_drain_vs_memory`, `agent_drain_cpu_vs_memory`.
        The drain counts from when the agent is connected: a reconnect is measured by itself.
        """
        say(f"an agent starts with {messages:,} messages of {payload_bytes:,} bytes; then its gateway comes")
        add = self._figures.add
        with self._agent() as empty:
            empty_s = empty.start_s
        with self._agent(messages, payload_bytes) as agent:
            add(f"agent_start_{name}_s", round(agent.start_s, 2))
            add(f"agent_start_{name}_vs_empty", round(agent.start_s / empty_s, 2))
            add(f"agent_start_{name}_rss_mb", round(agent.rss_mb, 1))
            with self._gateway.running():
                before = agent.cpu_s
                took_s, most_mb = self._drained(agent, messages)
                add(f"agent_drain{suffix}_per_s", round(messages / took_s))
                add(f"agent_drain{suffix}_per_cpu_s", round(messages / (agent.cpu_s - before)))
                add(f"agent_drain{suffix}_mb_per_s", round(messages * payload_bytes / 1e6 / took_s, 1))
                add(f"agent_drain{suffix}_rss_mb", round(most_mb, 1))
                add(f"agent_drained{suffix}_rss_mb", round(agent.rss_mb, 1))
                if not suffix:
                    self._memory_client()

    def _drained(self, agent: AgentProcess, messages: int) -> tuple[float, float]:
        """Seconds from the connection to the last acknowledgement, and the most resident memory meanwhile."""
        deadline = time.monotonic() + CONNECTED_TIMEOUT_S
        while not agent.status()["connected"]:
            if time.monotonic() > deadline:
                raise RuntimeError("the agent does not connect")
            time.sleep(_POLL_S)
        began, most_mb, told = time.monotonic(), 0.0, time.monotonic()
        while waiting := agent.waiting():
            most_mb, now = max(most_mb, agent.rss_mb), time.monotonic()
            if now - began > DRAIN_TIMEOUT_S:
                raise RuntimeError(f"{waiting:,} of {messages:,} messages still wait")
            if now - told >= PROGRESS_S:
                told = now
                say(f"  … {waiting:,} of {messages:,} wait")
            time.sleep(_POLL_S)
        return time.monotonic() - began, most_mb

    def _memory_client(self) -> None:
        """The same gateway, just after the agent's backlog."""
        took_s, took_cpu_s = asyncio.run(memory_client_s(self._port, MEMORY_MESSAGES, SMALL_BYTES))
        found = {"per_s": MEMORY_MESSAGES / took_s, "per_cpu_s": MEMORY_MESSAGES / took_cpu_s}
        for name, rate in found.items():
            self._figures.add(f"client_memory_{name}", round(rate))
            ratio = self._figures.values[f"agent_drain_{name}"] / rate
            self._figures.add(f"agent_drain{'_cpu' * ('cpu' in name)}_vs_memory", round(ratio, 2))

    def store_and_idle(self) -> None:
        """One agent, connected. First idle, while the access point is measured, with which it has nothing to do:
        `agent_start_empty_s`, `agent_rss_mb`, `agent_idle_core`.

        Then mails of 256 bytes, in turns with the bare disk: `agent_store_per_s` (one connection),
        `agent_store_batched_per_s` (forty), `disk_syncs_per_s`, and the first two by the last: `agent_store_vs_disk`,
        `agent_store_batched_vs_disk`; and `agent_store_batched_per_cpu_s`, by the processor time of the agent.
        """
        add, seconds = self._figures.add, IDLE_S * self._scale
        with self._agent() as agent:
            add("agent_start_empty_s", round(agent.start_s, 2))
            self._drained(agent, 0)
            say(f"an idle agent, for {seconds:.0f} s")
            before, began = agent.cpu_s, time.monotonic()
            self.connect_points()
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            add("agent_idle_core", round((agent.cpu_s - before) / (time.monotonic() - began), 4))
            add("agent_rss_mb", round(agent.rss_mb, 1))
            self._store(agent)

    def _store(self, agent: AgentProcess) -> None:
        say(f"mails, one by one and on {CONNECTIONS} connections, in turns with the bare disk")
        disk, single, batched, per_cpu = [], [], [], []
        with fresh_directory() as directory:
            for _ in range(TURNS):
                disk.append(syncs_per_s(directory, 1.5 * self._scale))
                seconds = 3 * self._scale
                single.append(uvloop.run(submitted_per_s(self._smtp_port, 1, seconds)))
                before = agent.cpu_s
                batched.append(uvloop.run(submitted_per_s(self._smtp_port, CONNECTIONS, seconds)))
                per_cpu.append(batched[-1] * seconds / (agent.cpu_s - before))
        add, syncs = self._figures.add, mean(disk)
        add("disk_syncs_per_s", round(syncs))
        add("agent_store_per_s", round(mean(single)))
        add("agent_store_batched_per_s", round(mean(batched)))
        add("agent_store_batched_per_cpu_s", round(mean(per_cpu)))
        add("agent_store_vs_disk", round(mean(single) / syncs, 2))
        add("agent_store_batched_vs_disk", round(mean(batched) / syncs, 2))

    def connect_points(self) -> None:
        """Records `connect_points_…_ms` at CONNECT_RATE requests a second, each on a connection of its own; in turns
        `connect_points_bare_…_ms` of a server that only answers; and `connect_points_vs_bare`, p99 by its p99."""
        say(f"{CONNECT_RATE:.0f} requests a second for connect points")
        ours_ms: list[float] = []
        bare_ms: list[float] = []
        with bare_access_point() as bare_port:
            for _ in range(TURNS):
                for port, found_ms in ((self._gateway.port_of("http"), ours_ms), (bare_port, bare_ms)):
                    found_ms += uvloop.run(asked_ms(port, CONNECT_RATE, 4 * self._scale))
        self._figures.latencies("connect_points", ours_ms)
        self._figures.latencies("connect_points_bare", bare_ms)
        ours, bare = (self._figures.values[f"{name}_p99_ms"] for name in ("connect_points", "connect_points_bare"))
        self._figures.add("connect_points_vs_bare", round(ours / bare, 2))

    def reconnect(self) -> None:
        """A client with its outbox on disk, whose gateway is killed and started again at once, and which publishes at
        that moment.

        Records, each as median and with `_max`, from the kill on: `client_back_ms`, until the message is acknowledged;
        `gateway_back_ms`, until the gateway says that it is ready; and `client_reconnect_ms`, from the second to the
        first: the client's part.
        """
        say("a client whose gateway is killed and started again")
        found = asyncio.run(self._restarts(max(2, round(RESTARTS * self._scale))))
        gateway_ms, client_ms = ([1000 * one for one in column] for column in zip(*found, strict=True))
        after_ms = [max(0.0, client - gateway) for gateway, client in zip(gateway_ms, client_ms, strict=True)]
        measured = {"gateway_back": gateway_ms, "client_back": client_ms, "client_reconnect": after_ms}
        for name, taken_ms in measured.items():
            self._figures.add(f"{name}_ms", round(median(taken_ms)))
            self._figures.add(f"{name}_max_ms", round(max(taken_ms)))

    async def _restarts(self, restarts: int) -> list[tuple[float, float]]:
        """Seconds from each kill: until the gateway is back; until the client's message is acknowledged. A client of
        its own each time: one whose connection did not last for ten seconds would go on with its longer pauses."""
        found, points = [], [f"mqtt://{HOST}:{self._port}"]
        self._gateway.start()
        try:
            with fresh_directory() as directory:
                for number in range(restarts):
                    store = directory / f"outbox-{number}"
                    async with Client(client_id=f"bench-back-{number}", connect_points=points, store=store) as client:
                        await client.connected()
                        await (await client.publish(TOPIC, b"before")).acknowledged
                        found.append(await self._restart(client))
        finally:
            self._gateway.stop()
        return found

    async def _restart(self, client: Client) -> tuple[float, float]:
        gateway = self._gateway
        began = time.perf_counter()
        gateway.kill()
        gateway.launch()
        message = await client.publish(TOPIC, os.urandom(SMALL_BYTES))
        acknowledged = asyncio.ensure_future(_done_at(message))
        while read_ready(gateway.data, gateway.name) is None:
            if gateway.ended() or time.perf_counter() - began > START_S:
                raise NotReadyError(f"the gateway is not back: {gateway.log()[-LOG_TAIL:]}")
            await asyncio.sleep(_READY_POLL_S)
        ready = time.perf_counter()
        async with asyncio.timeout(CONNECTED_TIMEOUT_S):
            return ready - began, await acknowledged - began


async def _done_at(message: Message) -> float:
    """When it is acknowledged."""
    await message.acknowledged
    return time.perf_counter()


def say(what: str) -> None:
    """Progress."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
