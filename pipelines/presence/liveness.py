"""Which gateways are alive, by their heartbeats and the ledger's ticks on the same partition of `presence` (R12, G2).

Offsets and append times decide; there is no clock and no timer. If a tick is more than `timeout_ms` after the last
heartbeat of a gateway, the gateway is gone. So a ledger that was down for an hour comes to the same result as one that
was up.

Ticks also prove that records could be appended at all. If there was no tick for long, because the broker or the ledger
was down, silence says nothing: the timeout of every gateway starts anew with the next tick, as it does at a start.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from schemas.identity import partition_of
from schemas.states import GatewayState


class Sign(NamedTuple):
    """The last sign of one gateway in a batch: its `boot`, append time, and whether it shut down in good order."""

    gateway: str
    boot: int
    at_ms: int
    ended: bool


class Liveness:
    """What is known of all gateways. `published` are the states published before a restart.

    `beat_ms` is the interval of heartbeats and ticks. A time without ticks is a gap if it exceeds `timeout_ms` minus
    one and a half beats. So the first tick after a pause does not find a gateway gone whose heartbeat came a beat, or a
    little more, before the last tick. The limit is at least one and a half beats. Otherwise every tick that is a little
    late would make a gap, and no gateway would ever be found gone. A timeout of three beats or more avoids that case.
    """

    def __init__(self, timeout_ms: int, beat_ms: int, published: Iterable[GatewayState] = ()) -> None:
        self._timeout_ms = timeout_ms
        self._gap_ms = max(timeout_ms - beat_ms * 3 // 2, beat_ms * 3 // 2)
        self._states = {state.gateway: state for state in published}
        # The time of the last heartbeat is not kept over a restart: a gateway's timeout runs from the next tick.
        self._last_sign_ms: dict[str, int] = {}
        self._last_tick_ms: dict[int, int] = {}
        self._after_gap_ms: dict[int, int] = {}

    @property
    def gateways(self) -> Mapping[str, GatewayState]:
        """By name; they say which attachments are void."""
        return self._states

    def judge(self, signs: Iterable[Sign], ticks: Mapping[int, Sequence[int]], partitions: int) -> list[GatewayState]:
        """Take the signs of a batch, and the append times of its ticks by partition, in order; return the states that
        are new. A gateway's records are on partition `crc32(name) % partitions`. Signs older than the state of their
        gateway, as when records are re-read, change nothing."""
        before = dict(self._states)
        self._find_gaps(ticks)
        for sign in signs:
            old = self._states.get(sign.gateway)
            if old is None or sign.boot > old.boot or (sign.boot == old.boot and sign.at_ms >= old.at_ms):
                self._last_sign_ms[sign.gateway] = sign.at_ms
                self._know(sign.gateway, sign.boot, not sign.ended, sign.at_ms)
        for gateway in self._states:
            partition = partition_of(gateway, partitions)
            if not ticks.get(partition):
                continue
            tick_ms, state = ticks[partition][-1], self._states[gateway]
            if state.alive and tick_ms > state.at_ms:
                last_ms = max(self._last_sign_ms.setdefault(gateway, tick_ms), self._after_gap_ms[partition])
                if tick_ms - last_ms > self._timeout_ms:
                    self._know(gateway, state.boot, False, tick_ms)
        return [state for gateway, state in self._states.items() if before.get(gateway) is not state]

    def adopt(self, states: Iterable[GatewayState]) -> None:
        """Take over what an earlier run has found by the signs and ticks just judged. It knew when the last heartbeats
        came."""
        self._states.update({state.gateway: state for state in states})

    def _find_gaps(self, ticks: Mapping[int, Sequence[int]]) -> None:
        """For each partition, find the first tick after the last gap; the start counts as a gap."""
        for partition, times_ms in ticks.items():
            for tick_ms in times_ms:
                last_ms = self._last_tick_ms.get(partition)
                if last_ms is None or tick_ms - last_ms > self._gap_ms:
                    self._after_gap_ms[partition] = tick_ms
                self._last_tick_ms[partition] = tick_ms

    def _know(self, gateway: str, boot: int, alive: bool, at_ms: int) -> None:
        old = self._states.get(gateway)
        if old is None or (old.boot, old.alive) != (boot, alive):
            self._states[gateway] = GatewayState(gateway=gateway, alive=alive, boot=boot, at_ms=at_ms)
