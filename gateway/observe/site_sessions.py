"""One client's session, at whichever gateway of the site has it: shown, and ended (G14).

The gateway that an operator asks passes the question to the client's home, over the listener for members
(:mod:`gateway.host.home_calls`). It has checked who asks, and the home takes a member's word for that; where members do
not prove by TLS who they are, it wants to see the operator's token itself. Both bound how long they take: a home that
does not answer is reported, and nobody waits for it (emqx#13124).
"""

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from gateway.errors import HomeUnreachable
from gateway.host.home_calls import HomeAnswer, HomeRequest
from gateway.host.host_server import HostServer
from gateway.observe.sessions import detail
from gateway.shard.arrivals import Kicked
from gateway.shard.home import Home
from schemas.undecodable import UNDECODABLE

SESSION: Final = "/admin/session"
CONNECTION: Final = "/admin/connection"
HOME_S: Final = 3.0
"""How long a home takes at most to end a session."""

SITE_S: Final = 4.0
"""How long the home, whoever it is in the end, may take to answer: less than the command line waits."""

_READ_S: Final = 0.5
_ANSWER_BYTES: Final = 16 << 20


class SiteSessions:
    """As one gateway finds them. Each method gives what the admin API answers with; None if the client has no
    session. `token` is the operator's header Authorization. They raise HomeUnreachable; NotAdmitted if nobody has the
    client's shard at the moment."""

    def __init__(self, home: Home, hosts: HostServer) -> None:
        self._home, self._hosts = home, hosts
        self._kicks: set[asyncio.Task[Kicked | None]] = set()

    async def session(self, client: str, token: str = "") -> dict[str, Any] | None:
        """In detail; `home` names the gateway, if it is another one."""
        answer = await self._of_other_home(client, "GET", SESSION, token)
        if answer is not None:
            return await self._read(answer)
        session = self._home.home_of(client).sessions.get(client)
        return None if session is None else detail(session)

    async def kick(self, client: str, token: str = "", *, end_session: bool) -> dict[str, Any] | None:
        """Ends the connection, and the session if asked to."""
        answer = await self._of_other_home(client, "DELETE", SESSION if end_session else CONNECTION, token)
        if answer is not None:
            return await self._read(answer)
        task = asyncio.create_task(self._home.kick(client, end_session=end_session))
        self._kicks.add(task)
        task.add_done_callback(self._kicked)
        done, _ = await asyncio.wait([task], timeout=HOME_S)  # not cancelled: what has begun comes to its end
        if not done:
            raise HomeUnreachable("the end of the session is not stored yet: Kafka, or the client's home, is slow")
        kicked = task.result()
        if kicked is None:
            return None
        return {"client": client, "connection_ended": kicked.connection, "session_ended": kicked.session}

    def _kicked(self, task: asyncio.Task[Kicked | None]) -> None:
        self._kicks.discard(task)
        if not task.cancelled():
            task.exception()  # for whoever still waits; nobody else has to know

    async def _of_other_home(self, client: str, method: str, path: str, token: str) -> HomeAnswer | None:
        """The answer of another gateway; None if the home is here, or nobody has it."""
        relays = self._hosts.relays
        if relays is None or relays.calls.is_here(client):
            return None
        headers = {"Authorization": token} if token else {}
        request = HomeRequest(method, f"{path}?{urlencode({'client': client})}", headers, b"", SITE_S)
        return await relays.calls.call(client, request)

    async def _read(self, answer: HomeAnswer) -> dict[str, Any] | None:
        name = answer.where.gateway
        try:
            body = await answer.read(_ANSWER_BYTES, _READ_S)
            found = msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise HomeUnreachable(f"{name} answers with what is no JSON: {error}") from error
        finally:
            answer.close()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise HomeUnreachable(f"{name}, which has the client's session: {found.get('error', answer.status)}")
        return found | {"home": name}
