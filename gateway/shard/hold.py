"""Whether this process may send to clients: not while it may have lost shards without knowing it (G6).

A process that stood still for long verifies its leases before it sends anything. The keeper of leases notices that at
its next step (:mod:`gateway.cluster.lease_keeper`). But a loop that wakes up first handles what its sockets have, and
what was left of the turn in which it was stopped. So every hold also looks at the time of the keeper's last step.

What is asked while it holds:

| who                                            | what it does until the end                                     |
|------------------------------------------------|----------------------------------------------------------------|
| `ReadySessions.flush`, hence all deliveries    | takes nothing out of queues                                    |
| `HostServer.dirty`, hence every answer at MQTT | leaves the bytes in the connections                            |
| `StreamLink.write_to` (HTTP)                   | writes no events                                               |
| `ReplyLink.take` (HTTP)                        | gives no replies to be written                 |

A connection that ends meanwhile gets DISCONNECT alone. What the transports were given before is not held: the home was
the owner then, by what it had read back. Nor are other answers over HTTP: they say what Kafka has stored, and that
counts in any case.
"""

import math
from collections.abc import Callable


class Hold:
    """Of one process. Off for ever if nothing calls `stepped` or `hold`. `now` gives monotonic seconds."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = float
        self._is_on = False
        self._until = math.inf
        self._after: dict[Callable[[], None], None] = {}

    def begin(self, now: Callable[[], float]) -> None:
        """Gateways share shards: before the first step."""
        self._now = now

    @property
    def is_on(self) -> bool:
        """Whether nothing may be sent."""
        return self._is_on or self._now() > self._until

    def after(self, action: Callable[[], None]) -> None:
        """Calls `action` once nothing holds any more; the same one once only."""
        self._after[action] = None

    def hold(self) -> None:
        """Nothing is sent until `resume`."""
        self._is_on = True

    def resume(self) -> None:
        """The leases are verified."""
        self._is_on, self._until = False, math.inf
        self._release()

    def stepped(self, now: float, longest_s: float) -> None:
        """The keeper of leases has taken a step, and performed what follows: from now on it may rest for so long."""
        self._until = now + longest_s
        self._release()

    def stopped(self) -> None:
        """The keeper takes no more steps."""
        self._until = math.inf
        self._release()

    def _release(self) -> None:
        if self.is_on or not self._after:
            return
        after, self._after = self._after, {}
        for action in after:
            action()
