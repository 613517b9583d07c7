"""How what shards say to one another about share groups gets there (R6, G6).

Directly, to the home of a shard in this process; else by Kafka. A shard hears what another one says in the order in
which that one says it, however shards move.

What was written to a shard may still be on its way to Kafka when the shard comes to this process. If the shard moves on
before the record is stored, the record stands behind the start of its next home, which takes it for something new. An
assignment that had been sent again meanwhile, directly, and given back, would be sent to the session once more, though
another member has it by now. So nothing is said directly while something that was written is not stored. It waits, and
is lost with the home that was to hear it: the next one asks for it.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gateway.bus import Bus
from gateway.errors import BusError
from gateway.shard.ready import ReadySessions
from gateway.shard.share_messages import Sender, ShareMessage, encode
from gateway.shard.shares import Shares


class _Waiting(NamedTuple):
    to: Shares
    sender: Sender
    message: ShareMessage


class _Way:
    """From one shard to another: how many records are not stored yet, and what is to be said then."""

    __slots__ = ("on_way", "waiting")

    def __init__(self) -> None:
        self.on_way = 0
        self.waiting: list[_Waiting] = []


class ShareWays:
    """Of the shards of one process. `find` gives the home of a shard here in an epoch or a later one, None if there is
    none. What is said directly is heard at the next flush of `ready`; `soon` runs something in the next turn of the
    loop. `topic` is `egress`."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        find: Callable[[int, int], Shares | None],
        ready: ReadySessions,
        soon: Callable[[Callable[[], None]], object],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._find = find
        self._ready = ready
        self._soon = soon
        self._on_fatal = on_fatal
        self._ways: defaultdict[tuple[int, int], _Way] = defaultdict(_Way)

    def post(self, sender: Sender, shard: int, epoch: int, message: ShareMessage) -> None:
        """To the home of `shard` in `epoch` or a later one. What is lost with a home, the next one asks for."""
        way, to = self._ways[sender.shard, shard], self._find(shard, epoch)
        if to is None:
            way.waiting.clear()
            way.on_way += 1
            value, headers = encode(message, sender)
            self._bus.produce(self._topic, shard, b"", value, headers, partial(self._stored, way))
        elif way.on_way:
            way.waiting.append(_Waiting(to, sender, message))
        else:
            self._say(to, sender, message)

    def are_idle(self, shard: int) -> bool:
        """Whether everything that the shard has said is stored, or heard."""
        return not any(way.on_way for (sender, _), way in self._ways.items() if sender == shard)

    def _stored(self, way: _Way, error: Any, _record: Any) -> None:
        way.on_way -= 1
        if error is not None:
            self._on_fatal(BusError(f"cannot write a message about share groups: {error.str()}"))
        elif not way.on_way:
            waiting, way.waiting = way.waiting, []
            for to, sender, message in waiting:  # a home that has ended hears nothing
                self._say(to, sender, message)

    def _say(self, to: Shares, sender: Sender, message: ShareMessage) -> None:
        if to.senders.counts(sender, is_direct=True) and self._ready.post(to.receive, message):
            self._soon(self._ready.flush)
