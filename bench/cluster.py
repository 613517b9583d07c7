"""A site of three gateways that share its shards: what its clients notice when gateways are killed, stand still or hand
shards over, and what sharing costs.

Real processes: a broker, gateways, and a stand-in for the routers that sends each message to every shard. Clients
connect to their home as the access point would tell them, and come back at once when their connection ends.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from statistics import median
from typing import Final

import uvloop
from confluent_kafka import Producer

from bench.cluster_fleet import fleet, settle
from bench.cluster_load import Qos2Path, cpu_under_load, relay_added_ms, throughput_in
from bench.cluster_moves import connections_kept
from bench.figures import Figures
from bench.gateway_start import sessions
from bench.processes import fresh_directory
from harness.gateway_site import NAMES, Site, SiteGateway
from schemas.settings import process_settings

SHARDS: Final = 16
FEW_SHARDS: Final = 4
KILLS: Final = 5
STOPS: Final = 2
MOVES: Final = 6
LIGHT_MOVES: Final = 12
SESSIONS_KILLS: Final = 2
TURNS: Final = 3
PATH_S: Final = 4.0


class ClusterBench:
    """Measures over one broker. `scale`: in so many times the usual time."""

    def __init__(self, bootstrap: str, figures: Figures, scale: float) -> None:
        self._bootstrap, self._figures, self._scale = bootstrap, figures, scale
        self._prefixes = (f"cluster{number}." for number in count())

    def run(self) -> None:
        """Records all figures of the cluster. A part that fails costs no other; raises RuntimeError at the end."""
        parts: dict[str, Callable[[], None]] = {
            "takeovers": lambda: uvloop.run(self._takeovers()),
            "moves": lambda: uvloop.run(self._moves()),
            "moved connections": lambda: uvloop.run(self._moved_connections()),
            "many sessions": self._many_sessions,
            "read-back": lambda: uvloop.run(self._read_back()),
            "standbys": self._standbys,
            "two gateways": lambda: uvloop.run(self._two_gateways()),
        }
        failed = []
        for name, part in parts.items():
            try:
                part()
            except Exception:
                traceback.print_exc()
                failed.append(name)
        if failed:
            raise RuntimeError(f"not measured: {', '.join(failed)}")

    def _times(self, usual: int) -> int:
        return max(1, round(usual * self._scale))

    @contextmanager
    def _site(
        self,
        names: tuple[str, ...] = NAMES,
        *,
        shards: int = SHARDS,
        cluster: bool = True,
        router: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[Site]:
        """Of one machine: its gateways pass sockets to one another, as those of `waystation up` do."""
        with fresh_directory() as data:
            sockets = {"WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(data / "sockets")} if cluster else {}
            with Site(
                data,
                self._bootstrap,
                next(self._prefixes),
                names,
                shards=shards,
                cluster=cluster,
                router=router,
                settings=lambda name: sockets | dict(settings or {}),
            ) as site:
                yield site

    # -- takeovers and moves -------------------------------------------------------------------------------------------

    async def _takeovers(self) -> None:
        """Records `takeover_owner_ms` (kill -9 until the last shard is another's by the log), `takeover_serving_ms`
        (until the last is served), `takeover_client_ms` (until the next message at a client of the dead gateway), each
        the worst, and their medians `…_p50_ms`; `takeover_others_ms` (longest silence of clients elsewhere, beyond that
        of as many quiet times); `takeover_stopped_ms` (SIGSTOP, clients that reconnect); `move_silence_loaded_ms`;
        `relay_added_p50_ms`."""
        with self._site() as site:
            site.start()
            async with fleet(site) as clients:
                await asyncio.to_thread(settle, site)
                quiet_ms = [await clients.quiet() for _ in range(self._times(KILLS))]
                kills = [await clients.takeover(SiteGateway.strike) for _ in range(self._times(KILLS))]
                for what in ("owner", "serving", "client"):
                    self._worst(f"takeover_{what}", [taken[f"{what}_ms"] for taken in kills])
                others_ms = [taken["others_ms"] for taken in kills]
                self._figures.add("takeover_others_ms", round(max(0.0, max(others_ms) - max(quiet_ms)), 1))
                self._figures.add("takeover_others_p50_ms", round(median(others_ms) - median(quiet_ms), 1))
                self._figures.add("takeover_quiet_silence_ms", round(max(quiet_ms), 1))
                stops = [await clients.takeover(SiteGateway.stand_still) for _ in range(self._times(STOPS))]
                self._worst("takeover_stopped", [taken["client_ms"] for taken in stops])
                self._worst("move_silence_loaded", [await clients.move() for _ in range(self._times(MOVES))])
                self._figures.add("relay_added_p50_ms", round(await relay_added_ms(site), 2))

    async def _moves(self) -> None:
        """Records `move_silence_ms`: a shard is moved in order, until its client gets the next message; and
        `move_quiet_silence_ms`, its longest silence while nothing is moved. With few clients: those of `_takeovers`
        keep the broker busy, and then each step waits for it."""
        with self._site(shards=FEW_SHARDS) as site:
            site.start()
            async with fleet(site, listeners=1) as clients:
                await asyncio.to_thread(settle, site)
                await clients.move()  # the first one waits for connections to Kafka
                quiet_ms = [await clients.quiet() for _ in range(self._times(KILLS))]
                self._worst("move_silence", [await clients.move() for _ in range(self._times(LIGHT_MOVES))])
                self._figures.add("move_quiet_silence_ms", round(max(quiet_ms), 1))

    async def _moved_connections(self) -> None:
        """Records `handover_connections_kept`: of 1,000 clients over plain TCP, when each shard moves once."""
        with self._site() as site:
            await asyncio.to_thread(site.start)
            await asyncio.to_thread(settle, site)
            self._figures.add("handover_connections_kept", await connections_kept(site))

    def _many_sessions(self) -> None:
        """Records `takeover_20000_sessions_ms`: kill -9 until the last shard is served, with 20,000 sessions in all."""
        with self._site() as site:
            producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})
            kafka = process_settings(next(iter(site.gateways.values())).environ).kafka
            for topic, partition, key, value in sessions(kafka):
                producer.produce(topic, value, key, partition)
                producer.poll(0)
            assert not producer.flush(120)
            site.start()
            took_ms = []
            for _ in range(self._times(SESSIONS_KILLS)):
                settle(site)
                victim = site.owner(0)
                began = time.monotonic()
                victim.strike()
                site.all_served()
                took_ms.append((time.monotonic() - began) * 1000)
                site.start(victim.gateway_name)
            self._worst("takeover_20000_sessions", took_ms)

    # -- what sharing costs --------------------------------------------------------------------------------------------

    async def _read_back(self) -> None:
        """Records `path_qos2_alone_p50_ms` (one gateway that shares with nobody), `path_qos2_shared_p50_ms` (one with
        `gateway.cluster.enabled`), in turns, and `read_back_added_ms`, their difference."""
        took_ms: dict[str, list[float]] = {"alone": [], "shared": []}
        with (
            self._site(NAMES[:1], shards=FEW_SHARDS, cluster=False) as alone,
            self._site(NAMES[:1], shards=FEW_SHARDS) as shared,
        ):
            paths = {}
            for name, site in (("alone", alone), ("shared", shared)):
                await asyncio.to_thread(site.start)
                paths[name] = await Qos2Path.open(site.gateways[NAMES[0]])
            for path in paths.values():
                await path.take(PATH_S)
            for _ in range(self._times(TURNS)):
                for name, path in paths.items():
                    took_ms[name] += await path.take(PATH_S)
            for path in paths.values():
                path.close()
        p50_ms = {name: median(found) for name, found in took_ms.items()}
        for name, value in p50_ms.items():
            self._figures.add(f"path_qos2_{name}_p50_ms", round(value, 2))
        self._figures.add("read_back_added_ms", round(p50_ms["shared"] - p50_ms["alone"], 2))

    def _standbys(self) -> None:
        """Records `standby_core`: the processor time that mirrors take, relative to what the owners take without any,
        of two gateways under the same load; in turns."""
        taken: dict[str, list[float]] = {"0": [], "1": []}
        for standbys in ("0", "1") * self._times(1):
            settings = {"WAYSTATION_GATEWAY__CLUSTER__STANDBYS": standbys}
            with self._site(NAMES[:2], shards=FEW_SHARDS, settings=settings) as site:
                site.start()
                settle(site)
                taken[standbys].append(uvloop.run(cpu_under_load(site)))
        without, mirrored = sum(taken["0"]), sum(taken["1"])
        self._figures.add("standby_core", round(max(0.0, mirrored - without) / without, 3))

    async def _two_gateways(self) -> None:
        """Records `gateways_2_vs_1_in`: messages in a second of two gateways, relative to one; and
        `gateways_2_vs_1_cpu`: processor time a message, likewise. QoS 1, each client at its home."""
        with self._site(NAMES[:2], router=False) as site:
            first, second = (site.gateways[name] for name in NAMES[:2])
            await asyncio.to_thread(site.start, first.gateway_name)
            one = [await throughput_in(site)]
            await asyncio.to_thread(site.start, second.gateway_name)
            await asyncio.to_thread(settle, site)
            two = await throughput_in(site)
            await asyncio.to_thread(second.leave)
            await asyncio.to_thread(site.all_served)
            one.append(await throughput_in(site))
        per_s, cpu = (sum(values) / len(one) for values in zip(*one, strict=True))
        self._figures.add("gateways_2_vs_1_in", round(two[0] / per_s, 2))
        self._figures.add("gateways_2_vs_1_cpu", round(two[1] / cpu, 2))

    def _worst(self, name: str, milliseconds: list[float]) -> None:
        """`<name>_ms`, the worst, and `<name>_p50_ms`."""
        self._figures.add(f"{name}_ms", round(max(milliseconds), 1))
        self._figures.add(f"{name}_p50_ms", round(median(milliseconds), 1))
