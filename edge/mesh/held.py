"""A bundle that an agent carries, with its copy budget; and who is told when that changes."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from bundles.bundle import Bundle, Header
from edge.mesh.spray import FOR_RECIPIENT


class Held:
    """A bundle as it came at `since`, and the copies that may be given to carriers; None: unlimited. `reserved` of
    them are offered to peers now. `is_shared`: others may have a copy, because it came from another or one has left
    this agent (M11). Where a bundle's parts are, is up to the carrier (:class:`InMemory`, and
    :mod:`edge.node.held_on_disk`): to ask for one property is cheaper than to ask for `bundle`."""

    if not TYPE_CHECKING:
        __slots__ = ()  # those of a subclass; mypy would take it that there are no others
    copies: int | None
    reserved: int
    is_shared: bool

    if TYPE_CHECKING:  # a subclass has them; msgspec's metaclass leaves no place for that of an abstract class

        @property
        def bundle(self) -> Bundle:
            """The bundle."""

        @property
        def since(self) -> float:
            """When it came, in seconds of the carrier's clock."""

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.bundle.message_id

    @property
    def header(self) -> Header:
        """The bundle's header."""
        return self.bundle.header

    @property
    def sequence(self) -> int:
        """The header's."""
        return self.header.sequence

    @property
    def recipient(self) -> str | None:
        """The header's."""
        return self.header.recipient

    @property
    def hops(self) -> int:
        """Over how many links it came."""
        return self.bundle.hops

    @property
    def size(self) -> int:
        """How many bytes the bundle takes, encoded."""
        return self.bundle.size

    def age_s(self, now: float) -> int:
        """How old the bundle is."""
        return self.bundle.age_s + max(0, int(now - self.since))

    def remaining_s(self, now: float) -> int:
        """For how long it is still alive."""
        return max(0, self.header.lifetime_s - self.age_s(now))

    @property
    def free(self) -> int | None:
        """The copies that are not reserved; None: unlimited."""
        return None if self.copies is None else self.copies - self.reserved


class InMemory(Held):
    """All of it in memory."""

    __slots__ = ("bundle", "copies", "is_shared", "reserved", "since")
    bundle: Bundle
    since: float

    def __init__(self, bundle: Bundle, copies: int | None, since: float) -> None:
        self.bundle, self.copies, self.since = bundle, copies, since
        self.reserved, self.is_shared = 0, False


class HeldById(Protocol):
    """What is held by message id; a dictionary is one. In the order in which it came."""

    def __len__(self) -> int: ...
    def __contains__(self, message_id: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, message_id: str, /) -> Held: ...
    def __setitem__(self, message_id: str, held: Any, /) -> None: ...
    def get(self, message_id: str, /) -> Held | None: ...
    def pop(self, message_id: str, default: None, /) -> Held | None: ...
    def values(self) -> Iterable[Held]: ...


class HeldWatcher(Protocol):
    """Is told of each change of what a carrier holds, in the call that makes it."""

    def added(self, held: Held) -> None:
        """It is held now."""

    def given(self, held: Held) -> None:
        """A peer has stored a copy of it."""

    def removed(self, held: Held) -> None:
        """It is not held any more: delivered, expired, or given up."""


def is_for_others(held: Held, name: str) -> bool:
    """Whether the agent `name` brings the bundle to the platform: it is not for itself, and has not come from there."""
    return held.recipient != name and held.copies != FOR_RECIPIENT


class ForOthers:
    """Passes on what concerns bundles that the agent `name` brings to the platform."""

    def __init__(self, watcher: HeldWatcher, name: str) -> None:
        self._watcher, self._name = watcher, name

    def added(self, held: Held) -> None:
        """See :class:`HeldWatcher`."""
        if is_for_others(held, self._name):
            self._watcher.added(held)

    def given(self, held: Held) -> None:
        """See :class:`HeldWatcher`."""
        if is_for_others(held, self._name):
            self._watcher.given(held)

    def removed(self, held: Held) -> None:
        """See :class:`HeldWatcher`."""
        if is_for_others(held, self._name):
            self._watcher.removed(held)
