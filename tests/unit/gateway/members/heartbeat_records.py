"""Heartbeats for tests."""

from typing import Any

from schemas.members import BEARERS, Address, Load, MemberRecord


def heartbeat(name: str = "g", boot: int = 1, seq: int = 0, state: Any = "up", **fields: Any) -> MemberRecord:
    """A record of a gateway that has every bearer at the address `<name>.test`, unless `fields` say otherwise."""
    addresses = {bearer: Address(f"{name}.test", 1000 + n) for n, bearer in enumerate(BEARERS)}
    defaults = {"at_us": 1_800_000_000_000_000, "addresses": addresses, "load": Load(connections=3, cpu=0.5)}
    return MemberRecord(boot=boot, seq=seq, state=state, **(defaults | fields))
