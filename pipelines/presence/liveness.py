"""Which gateways are alive, by their heartbeats and the ledger's ticks on the same partition of `presence` (R12, G2).

A record's place in its partition and its append time decide, no clock and no timer: where a tick stands more than
`timeout_ms` behind the last heartbeat of a gateway, the gateway is gone. So a ledger that was away for an hour judges
as one that was there.

Ticks are witnesses too that records could be appended at all. Where there was none for long, because the broker or the
ledger was away, silence says nothing: the time of all gateways begins anew with the first tick after it, as at a start.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from schemas.identity import partition_of
from schemas.states import GatewayState


class Sign(NamedTuple):
    """What the records of a batch say of one gateway, by the last of them: its `boot`, append time, and whether it has
    ended in good order."""

    gateway: str
    boot: int
    heard_ms: int
    ended: bool


class Liveness:
    """What is known of all gateways; `told` are the states that others have been told, before a restart.

    `beat_ms` is how often gateways and ledger say something. No tick for longer than `timeout_ms` less one and a half
    beats is a gap: so a gateway that was heard a beat before the last tick, or a little more, is not found gone by the
    first tick after a pause. Where that would be less than one and a half beats, ticks that come a little late would
    all be gaps, and nobody ever be found gone: there it is these, and a timeout of three beats or more is better.
    """

    def __init__(self, timeout_ms: int, beat_ms: int, told: Iterable[GatewayState] = ()) -> None:
        self._timeout_ms = timeout_ms
        self._gap_ms = max(timeout_ms - beat_ms * 3 // 2, beat_ms * 3 // 2)
        self._states = {state.gateway: state for state in told}
        # When a gateway was last heard is not kept over a restart: its time runs from the next tick.
        self._heard_ms: dict[str, int] = {}
        self._last_tick_ms: dict[int, int] = {}
        self._after_gap_ms: dict[int, int] = {}

    @property
    def gateways(self) -> Mapping[str, GatewayState]:
        """By name: they say which attachments are void."""
        return self._states

    def judge(self, signs: Iterable[Sign], ticks: Mapping[int, Sequence[int]], partitions: int) -> list[GatewayState]:
        """Takes the signs of a batch, and by partition the append times of its ticks, in their order; returns the
        states that are new. A gateway's records stand on partition `crc32(name) % partitions`. What is older than the
        state of its gateway, as when records are replayed, changes nothing."""
        before = dict(self._states)
        self._find_gaps(ticks)
        for sign in signs:
            old = self._states.get(sign.gateway)
            if old is None or sign.boot > old.boot or (sign.boot == old.boot and sign.heard_ms >= old.at_ms):
                self._heard_ms[sign.gateway] = sign.heard_ms
                self._know(sign.gateway, sign.boot, not sign.ended, sign.heard_ms)
        for gateway in self._states:
            partition = partition_of(gateway, partitions)
            if not ticks.get(partition):
                continue
            tick_ms, state = ticks[partition][-1], self._states[gateway]
            if state.alive and tick_ms > state.at_ms:
                heard_ms = max(self._heard_ms.setdefault(gateway, tick_ms), self._after_gap_ms[partition])
                if tick_ms - heard_ms > self._timeout_ms:
                    self._know(gateway, state.boot, False, tick_ms)
        return [state for gateway, state in self._states.items() if before.get(gateway) is not state]

    def _find_gaps(self, ticks: Mapping[int, Sequence[int]]) -> None:
        """By partition: the first tick after the last gap, which the start is too."""
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
