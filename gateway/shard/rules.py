"""What one client may do: asked for each PUBLISH and SUBSCRIBE, once, at the gateway that it speaks to (Q12, R11).

Whoever lets a client in (:mod:`gateway.host.authenticator`) gives it its rules; the home asks them, and knows nothing
of users.
"""

import math
from typing import Final, NamedTuple, Protocol, runtime_checkable

from mqtt.codes import ReasonCode
from mqtt.packets import Publish


class Verdict(NamedTuple):
    """On a PUBLISH. `reason`: SUCCESS, or why it is refused; `flags` go into the envelope's `flags` (Q12)."""

    reason: ReasonCode
    flags: str = ""


ALLOWED: Final = Verdict(ReasonCode.SUCCESS)
FOR_EVER: Final = math.inf


class ClientRules(Protocol):
    """The rules of one connected client. `user` is whom it was authenticated as, "" for nobody; `open` that everything
    is allowed, so that the hot path need not ask; `until` when it must show itself anew, seconds since the epoch: its
    connection ends then with 0x87."""

    user: str
    open: bool
    until: float

    def publish(self, packet: Publish) -> Verdict:
        """Whether a message may be sent on, its topic in full (aliases are resolved)."""
        ...

    def may_publish(self, topic: str) -> bool:
        """Whether the client may publish to a topic, whatever the message; nothing is counted."""
        ...

    def subscribe(self, topic_filter: str) -> ReasonCode:
        """SUCCESS, or why the filter (with `$share/…/` if it is shared) is refused."""
        ...


@runtime_checkable
class Paced(Protocol):
    """Rules that slow a client down rather than refuse what it sends: a host asks when it has handed a read over."""

    def wait_s(self) -> float:
        """Seconds until more may be read from the client; 0 or less: now."""
        ...


class Everything:
    """Rules that allow all, to `user`."""

    open = True

    def __init__(self, user: str = "", until: float = FOR_EVER) -> None:
        self.user = user
        self.until = until

    def publish(self, packet: Publish) -> Verdict:
        return ALLOWED

    def may_publish(self, topic: str) -> bool:
        return True

    def subscribe(self, topic_filter: str) -> ReasonCode:
        return ReasonCode.SUCCESS


EVERYTHING: Final = Everything()
