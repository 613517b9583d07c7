"""Keeps trying to reach the agents at known addresses, with full jitter between attempts (M5)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from bundles.errors import CertificateError
from edge.answers import Changes
from edge.client.errors import StoreError
from edge.mesh.contact_events import EndedBy
from edge.node.contacts import Contacts, PeerStatus
from edge.node.errors import LinkRefused, NodeError
from edge.node.links import Links
from edge.reconnect import STABLE_S, FullJitter

Address = tuple[str, int]
ADDRESSES_MAX: Final = 1_000
"""Addresses that are tried; what discovery finds beyond is passed over."""

_log: Final = logging.getLogger("waystation.mesh")


class Dialer:
    """One task an address. While there is a contact with the agent at an address, whoever opened it, it waits. What
    anybody in the network announces adds addresses and removes them again, but not those that are fixed."""

    def __init__(
        self,
        own_name: str,
        links: Links,
        contacts: Contacts,
        backoff: Callable[[], FullJitter] = lambda: FullJitter(0.5, 60.0),
    ) -> None:
        self._own_name, self._links, self._contacts, self._backoff = own_name, links, contacts, backoff
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._names: dict[Address, str] = {}
        self._problems: dict[Address, str] = {}
        self._fixed: set[Address] = set()
        self._busy: set[Address] = set()  # a link is being opened, or open
        self._gone: set[Address] = set()
        self._answered: set[Address] = set()  # an agent of the mesh was there
        self._attempts: dict[Address, int] = {}  # that have failed since there was a link, or another network
        self._changes, self._hurries = Changes(), 0

    def keep(self, address: Address) -> None:
        """An agent is there, as somebody here has said: it is tried until this ends."""
        self._fixed.add(address)
        self.add(address)

    def add(self, address: Address, name: str = "") -> None:
        """An agent may be there; `name`: its name, as is announced."""
        self._gone.discard(address)
        if name and address not in self._fixed:
            self._names[address] = name
        if address not in self._tasks and len(self._tasks) < ADDRESSES_MAX:
            self._tasks[address] = asyncio.create_task(self._run(address))

    def remove(self, address: Address) -> None:
        """It has gone from there; a contact that runs goes on, as long as its link does."""
        task = None if address in self._fixed else self._tasks.get(address)
        if task is not None and address not in self._busy:
            self._drop(address)
            task.cancel()
        elif task is not None:
            self._gone.add(address)

    def has_answered(self, address: Address) -> bool:
        """Whether an agent of the mesh was reached there, since the address is known."""
        return address in self._answered

    def try_now(self) -> None:
        """The network has changed: pauses between attempts end, and begin short again."""
        self._attempts.clear()
        self._hurries += 1
        self._changes.wake()

    async def close(self) -> None:
        """Ends all links that were dialled."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def statuses(self) -> list[PeerStatus]:
        """The addresses to which there is no contact."""
        return [
            PeerStatus(name, f"{address[0]}:{address[1]}", "waiting", problem=self._problems.get(address, ""))
            for address in self._tasks
            if (name := self._names.get(address, "")) not in self._contacts
        ]

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _run(self, address: Address) -> None:
        loop, backoff, attempts = asyncio.get_running_loop(), self._backoff(), self._attempts
        try:
            while address not in self._gone:
                await self._pause(backoff.delay_s(attempts.get(address, 0)))
                await self._contacts.until_gone(self._names.get(address, ""))
                began = loop.time()
                is_failure = await self._attempt(address)
                is_lasting = is_failure and loop.time() - began < STABLE_S
                attempts[address] = attempts.get(address, 0) + 1 if is_lasting else 0
        except (StoreError, NodeError) as error:
            _log.debug("link to %s:%d: %s", *address, error)  # the node reports it
        finally:
            self._drop(address)

    async def _pause(self, seconds: float) -> None:
        hurries = self._hurries
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changes.until(lambda: self._hurries != hurries)

    async def _attempt(self, address: Address) -> bool:
        """Whether it failed: no link, or one that was no use."""
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        named.add_done_callback(lambda done: self._named(address, done))
        self._busy.add(address)
        try:
            closed = await self._links.dial(*address, named)
        except (OSError, LinkRefused, CertificateError) as error:
            self._failed(address, " ".join(str(error).split()) or type(error).__name__)
            return True
        except (StoreError, NodeError):
            raise
        except Exception as error:  # a bug, or a name that no resolver takes
            self._failed(address, f"{type(error).__name__}: {error}", error)
            return True
        finally:
            self._busy.discard(address)
            named.cancel()
        if closed is None or closed.by in (EndedBy.US, EndedBy.PEER):
            self._problems.pop(address, None)
            return closed is not None and closed.by is EndedBy.PEER
        self._failed(address, closed.detail)
        return True

    def _named(self, address: Address, named: "asyncio.Future[str]") -> None:
        if not named.cancelled():
            self._names[address] = named.result()
            self._answered.add(address)

    def _failed(self, address: Address, problem: str, bug: Exception | None = None) -> None:
        if self._problems.get(address) != problem:
            level = logging.INFO if bug is None else logging.ERROR
            _log.log(level, "no contact with %s:%d: %s", *address, problem, exc_info=bug)
        self._problems[address] = problem

    def _drop(self, address: Address) -> None:
        with contextlib.suppress(KeyError):
            del self._tasks[address]
        self._names.pop(address, None)
        self._attempts.pop(address, None)
        self._problems.pop(address, None)
        self._gone.discard(address)
        self._answered.discard(address)
