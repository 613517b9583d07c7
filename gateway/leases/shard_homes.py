"""What the keeper of leases asks of the homes of shards (G4, Q7, Q9)."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from gateway.shard.start_steps import Started


class ShardHomes(Protocol):
    """The homes of shards at this gateway: they do what the keeper decides."""

    async def start_shards(self, owned: Mapping[int, int], is_owned: Callable[[int, int], bool]) -> Started:
        """Starts the shards, each in its epoch, if it still `is_owned` once its state is read; each fails by itself.
        Raises GatewayError for what concerns all of them, as a Kafka that does not answer; then none is started."""
        ...

    async def hand_over(self, number: int, to: str, then: Callable[[], None]) -> None:
        """Ends a shard in order, so that another gateway can start it: `to`, if it is not "". Runs `then` as soon as
        that one may. Raises GatewayError."""
        ...

    def abandon(self, number: int) -> Coroutine[Any, Any, None]:
        """Another gateway has the shard: its home sends and writes nothing more from now on. What is returned waits
        until nothing of it is left."""
        ...

    async def follow(self, number: int) -> None:
        """This gateway is a standby of the shard. Raises GatewayError if it cannot keep it warm now."""
        ...

    async def unfollow(self, number: int) -> None:
        """It is one no more."""
        ...

    def hold(self) -> None:
        """Nothing is sent to clients until `resume`."""
        ...

    def resume(self) -> None: ...

    def stepped(self, now: float, longest_s: float) -> None:
        """The keeper has taken a step. If it takes none for longer than `longest_s`, nothing is sent until it does."""
        ...

    def stopped(self) -> None:
        """It takes no more steps."""
        ...
