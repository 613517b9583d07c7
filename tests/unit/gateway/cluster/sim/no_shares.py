"""A toy home without share groups: what :class:`tests.unit.gateway.cluster.sim.shares.ShareHome` is where there are
some."""

from typing import Any


class NoShares:
    has_begun = False

    def recover(self) -> None:
        """There is nothing to be found."""

    def begin(self) -> None:
        """There is nothing to say."""

    def freeze(self) -> None:
        """There is nothing to end."""

    def end(self) -> None:
        """There is nothing to end."""

    def tick(self) -> None:
        """Nothing is due."""

    def read(self, entry: Any) -> None:
        """No record is for share groups."""

    def owns(self, _key: bytes) -> bool:
        return False

    def offer(self, _partition: int, _offset: int, _message: Any) -> None:
        """No message is for a group."""
