"""Who may speak about share groups for a shard: only the home of its highest epoch (G6, Q7; R6). Pure.

An owner that has lost its shard may not know it, or its Kafka client may still send what it had queued. What it says
then is void. The next owner has told everybody that it has started, and has sent again what is open. From the earlier
one a member could seem away that is connected elsewhere, and an assignment could come again that is over and forgotten.

The order of the receiver's partition decides: what an earlier owner says before the next one has said anything counts.
A receiver that starts knows the epochs of the fences on `ingress`, which an owner writes before it says anything.

Homes of one process speak directly. What a home had written to the log just before the receiver started in its process
comes behind what it says directly. It is void then: the receiver has said that it has started, and was told again all
that it has to know. Otherwise an assignment that was given back could come once more, from before. The other way round,
a home that has heard of a higher epoch of a shard speaks to that one by the log, though a home of an earlier epoch may
still be in its process: this one has lost the shard, and does not know it yet.
"""

from gateway.shard.share_messages import Sender
from schemas.errors import RecordError


class ShareSenders:
    """The highest epoch of each of the `shards` shards, as one receiver has heard of it."""

    def __init__(self, shards: int) -> None:
        self._epochs = [0] * shards
        self._direct = [0] * shards
        """The epoch in which a home of each shard has spoken directly."""

    def has_epoch(self, shard: int, epoch: int) -> None:
        """The shard has had an owner in this epoch."""
        self._epochs[shard] = max(self._epochs[shard], epoch)

    def highest(self, shard: int) -> int:
        """The highest epoch of the shard; 0 if none is known."""
        return self._epochs[shard]

    def counts(self, sender: Sender | None, *, is_direct: bool = False) -> bool:
        """Whether what `sender` says now counts, directly or by the log; None does not say who it is, as in earlier
        versions. Raises RecordError if there is no such shard."""
        if sender is None or not sender.epoch:
            return True
        shard, epoch = sender
        if shard >= len(self._epochs):
            raise RecordError(f"a message about share groups is from shard {shard}; there are {len(self._epochs)}")
        if epoch < self._epochs[shard] or (epoch == self._direct[shard] and not is_direct):
            return False
        self._epochs[shard] = epoch
        if is_direct:
            self._direct[shard] = epoch
        return True
