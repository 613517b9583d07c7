"""Takes a sample of the gateway's counters every INTERVAL_S, as long as the gateway runs.

It reads only what is there already: no scan of sessions, no lock, no request to Kafka.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from prometheus_client import Histogram

from gateway.console.history import INTERVAL_S, Buckets, History, Sample
from gateway.console.refusals import refused
from gateway.host.host_server import HostServer
from gateway.shard.node import Node


class Sampler:
    """Fills `history`; `stages` are histograms by the key of the stage, `in_flight` counts records on their way."""

    def __init__(
        self, node: Node, hosts: HostServer, in_flight: Callable[[], int], stages: Mapping[str, Histogram]
    ) -> None:
        self.history = History()
        self._node = node
        self._hosts = hosts
        self._in_flight = in_flight
        self._stages = stages
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.take()
        self._timer = self._loop.call_later(INTERVAL_S, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def take(self) -> None:
        """One sample, now."""
        hosts, traffic = self._hosts, self._hosts.traffic
        received, sent = traffic.publishes_received, traffic.publishes_sent
        self.history.add(
            Sample(
                at=self._loop.time(),
                received=(received[0], received[1], received[2]),
                sent=(sent[0], sent[1], sent[2]),
                bytes_received=traffic.bytes_received,
                bytes_sent=traffic.bytes_sent,
                refused=refused(self._node.counts) + refused(hosts.counts),
                cpu_s=time.process_time(),
                connections=len(hosts.connections) + hosts.http_connections,
                in_flight=self._in_flight(),
                stages={stage: _buckets(histogram) for stage, histogram in self._stages.items()},
            )
        )


def _buckets(histogram: Histogram) -> Buckets:
    (family,) = histogram.collect()
    return tuple(
        (float(sample.labels["le"]), sample.value) for sample in family.samples if sample.name.endswith("_bucket")
    )
