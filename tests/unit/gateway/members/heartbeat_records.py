"""Heartbeats for tests."""

from typing import Any

from schemas.members import BEARERS, GatewayAddress, GatewayLoad, Heartbeat


def heartbeat(name: str = "g", boot: int = 1, seq: int = 0, state: Any = "up", **fields: Any) -> Heartbeat:
    """A record of a gateway that has every bearer at the address `<name>.test`, unless `fields` say otherwise."""
    addresses = {bearer: GatewayAddress(f"{name}.test", 1000 + n) for n, bearer in enumerate(BEARERS)}
    given: dict[str, Any] = {"addresses": addresses, "load": GatewayLoad(connections=3, cpu=0.5)} | fields
    return Heartbeat(boot=boot, seq=seq, state=state, **({"at_us": 1_800_000_000_000_000} | given))
