"""Clients whose connections move with their shard, in virtual time: the twin of gateway.host.leaving and arriving."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import NotAdmitted
from gateway.shard.link import Link
from gateway.shard.moved_clients import CLAIMS_APART, MovedClient
from gateway.shard.rules import EVERYTHING
from gateway.shard.session_state import SessionState, export
from gateway.shard.shard_home import Attached, ShardHome
from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_client import Client, ClientLink
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.two_gateways import Gateway

HOLD_S, WAIT_S = 1.0, 5.0


class Unread:
    """In place of a home and of a publisher while nothing is read from a client: what it says waits in its socket."""

    def __init__(self, said: list[tuple[str, str, tuple[Any, ...]]], to: str) -> None:
        self._said, self._to = said, to

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self._said.append((self._to, name, arguments))


class Moving:
    """A client on its way: its link and session at the former home, and what it has said since."""

    def __init__(self, client: Client, link: ClientLink) -> None:
        self.client, self.link, self.former = client, link, client.attached
        self.said: list[tuple[str, str, tuple[Any, ...]]] = []
        home, publisher = Unread(self.said, "home"), Unread(self.said, "publisher")
        client.attached = Attached(home, self.former.session, True, publisher)  # type: ignore[arg-type]

    def end(self) -> None:
        """Its socket is closed."""
        if self.client.link is self.link:
            self.client.link = None

    def go_on(self, attached: Attached, link: ClientLink) -> None:
        client = self.client
        if client.link is not link:
            return
        client.attached, link.writable = attached, True
        instead = {id(self.former.session): attached.session, id(self.link): link}
        for to, name, arguments in self.said:
            of = attached.home if to == "home" else attached.publisher
            getattr(of, name)(*(instead.get(id(argument), argument) for argument in arguments))
        attached.home.writable(attached.session, link)


class TwinLeaving:
    def __init__(self, moves: "TwinMoves", home: ShardHome, to: "TwinMoves") -> None:
        self._moves, self._home, self._to = moves, home, to

    async def hold(self) -> None:
        if not self._moves.is_up:  # it was killed, and does nothing more
            await asyncio.get_running_loop().create_future()
        links = {id(session.link) for session in self._home.sessions.values()}
        for client in self._moves.site.clients:
            if client.link is not None and id(client.link) in links:
                client.link.writable = False
                self._moves.held.append(Moving(client, client.link))
        loop = asyncio.get_running_loop()
        until = loop.time() + HOLD_S
        while loop.time() < until and not all(_is_quiet(one.former) for one in self._moves.held):
            await asyncio.sleep(0.001)

    async def leave(self) -> None:
        held = self._moves.held
        writer = self._home.writer
        await asyncio.gather(*(writer.durable(partial(writer.windows, one.former.session)) for one in held))
        await asyncio.sleep(0)
        if not self._moves.is_up:
            return
        self._moves.held = []
        for one in held:
            session = one.former.session
            state = export(session) if session.link is one.link and _is_quiet(one.former) else None
            if state is not None and one.client.link is one.link and self._to.is_up:
                self._to.take(self._home.number, one, state, self._home.spool.epoch)
                session.moved()


class TwinMoves:
    """Of one gateway. `held` are clients that leave it; `waiting` those that have come, by shard."""

    def __init__(self, site: "MovingSite") -> None:
        self.site, self.is_up = site, True
        self.held: list[Moving] = []
        self.waiting: dict[int, list[tuple[Moving, SessionState, int]]] = {}
        self._arrived: dict[int, list[tuple[Moving, ClientLink, Attached]]] = {}

    def kill(self) -> None:
        self.is_up = False
        moving = [one for waiting in self.waiting.values() for one, *_ in waiting]
        for one in (*self.held, *moving):
            one.end()
        for one, link, _ in (each for arrived in self._arrived.values() for each in arrived):
            if one.client.link is link:
                one.client.link = None

    def take(self, number: int, one: Moving, state: SessionState, epoch: int) -> None:
        copy = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SessionState)
        self.waiting.setdefault(number, []).append((one, copy, epoch))
        asyncio.get_running_loop().call_later(WAIT_S, self._too_late, number, one)

    def leaving(self, home: ShardHome, to: str) -> TwinLeaving:
        return TwinLeaving(self, home, self.site.moves[int(to)])

    async def arrive(self, home: ShardHome) -> None:
        for one, state, epoch in self.waiting.pop(home.number, []):
            if not epoch < home.spool.epoch <= epoch + CLAIMS_APART:
                one.end()
                continue
            client = one.client
            if client.link is not one.link:
                continue
            link = client.link = ClientLink(client)
            link.writable = False
            moved = MovedClient(client.name, state, link, EVERYTHING, "peer", "mqtt5", True, partial(self._all, link))
            try:
                attached = home.move_in(moved)
            except NotAdmitted:
                client.link = None
            else:
                self._arrived.setdefault(home.number, []).append((one, link, attached))

    async def go_on(self, home: ShardHome) -> None:
        for one, link, attached in self._arrived.pop(home.number, []):
            if attached.session.in_hand is None:
                one.go_on(attached, link)
            else:
                self.site.resuming[id(link)] = partial(one.go_on, attached, link)
                home.deliverer.load(attached.session)

    def _all(self, link: Link) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.site.resuming.pop(id(link), lambda: None)())

    def _too_late(self, number: int, one: Moving) -> None:
        if any(one is each for each, *_ in self.waiting.get(number, ())):
            self.waiting[number] = [each for each in self.waiting[number] if each[0] is not one]
            one.end()
            one.client.closed_by = ReasonCode.SERVER_MOVED


class MovingSite(Clustered):
    """Gateways of one machine, and their `moves`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.moves: list[TwinMoves] = []
        self.resuming: dict[int, Callable[[], None]] = {}

    async def empty(self) -> Gateway:
        gateway = await super().empty()
        moves = TwinMoves(self)
        gateway.home.moved_clients = moves
        self.moves.append(moves)
        return gateway

    def end(self, gateway: Gateway) -> None:
        """kill -9."""
        if gateway.is_up:
            gateway.kill()
            self.moves[self.gateways.index(gateway)].kill()

    async def give_up(self, number: int, to: Gateway) -> None:
        owner = self.owner(number)
        assert owner is not None
        await owner.home.hand_over(number, str(self.gateways.index(to)))
        owner.spools.files.pop(number, None)

    async def settle(self) -> None:
        await turn(WAIT_S + 1)
        await super().settle()


def _is_quiet(attached: Attached) -> bool:
    session = attached.session
    return not (attached.publisher.in_flight or session.is_logging or session.sending)
