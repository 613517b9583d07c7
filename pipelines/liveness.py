"""Which gateways are alive, by their heartbeats and the ledger's ticks on the same partition of `presence` (R12, G2).

A record's place in its partition and its append time decide, no clock and no timer: where a tick stands more than
`timeout_ms` behind the last heartbeat of a gateway, the gateway is gone. So a ledger that was away for an hour judges
as one that was there.
"""

from collections.abc import Iterable, Mapping
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
    """What is known of all gateways; `told` are the states that others have been told, before a restart."""

    def __init__(self, timeout_ms: int, told: Iterable[GatewayState] = ()) -> None:
        self._timeout_ms = timeout_ms
        self._states = {state.gateway: state for state in told}
        # When a gateway was last heard is not kept over a restart: its time runs from the next tick.
        self._heard_ms: dict[str, int] = {}

    @property
    def void_before(self) -> dict[str, int]:
        """By gateway: attachments of an earlier boot are void."""
        return {name: state.void_before for name, state in self._states.items()}

    def judge(self, signs: Iterable[Sign], ticks: Mapping[int, int], partitions: int) -> list[GatewayState]:
        """Takes the signs of a batch, and by partition the append time of its last tick; returns the states that are
        new. A gateway's records stand on partition `crc32(name) % partitions`. What is older than the state of its
        gateway, as when records are replayed, changes nothing."""
        before = dict(self._states)
        for sign in signs:
            old = self._states.get(sign.gateway)
            if old is None or sign.boot > old.boot or (sign.boot == old.boot and sign.heard_ms >= old.at_ms):
                self._heard_ms[sign.gateway] = sign.heard_ms
                self._know(sign.gateway, sign.boot, not sign.ended, sign.heard_ms)
        for gateway in self._states:
            tick_ms = ticks.get(partition_of(gateway, partitions))
            state = self._states[gateway]
            if tick_ms is not None and state.alive and tick_ms > state.at_ms:
                heard_ms = self._heard_ms.setdefault(gateway, tick_ms)
                if tick_ms - heard_ms > self._timeout_ms:
                    self._know(gateway, state.boot, False, tick_ms)
        return [state for gateway, state in self._states.items() if before.get(gateway) is not state]

    def _know(self, gateway: str, boot: int, alive: bool, at_ms: int) -> None:
        old = self._states.get(gateway)
        if old is None or (old.boot, old.alive) != (boot, alive):
            self._states[gateway] = GatewayState(gateway=gateway, alive=alive, boot=boot, at_ms=at_ms)
