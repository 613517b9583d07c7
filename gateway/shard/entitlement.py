"""What a client has a claim to: its own session, and those subscriptions that its rules allow (R11)."""

import asyncio
from collections import Counter
from collections.abc import Mapping

from gateway.errors import NotAdmitted
from gateway.shard.rules import ClientRules
from gateway.shard.session import Session
from gateway.shard.subscribing import Subscriber
from mqtt.codes import ReasonCode


class Entitlement:
    """`changes` counts how often rules have changed since the start."""

    def __init__(self, sessions: Mapping[str, Session], subscriber: Subscriber, counts: Counter[str]) -> None:
        self._sessions = sessions
        self._subscriber = subscriber
        self._counts = counts
        self.changes = 0

    def check_owner(self, session: Session | None, rules: ClientRules) -> None:
        """Raises NotAdmitted if the session is another user's. One of nobody is whoever's comes with its client id, as
        it always was."""
        if session is not None and session.user not in ("", rules.user):
            self._counts["not_admitted_other_user"] += 1
            raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "the session of this client id belongs to another user")

    async def end_forbidden(self, session: Session) -> None:
        """Ends the subscriptions that the session's rules do not allow; returns once that is durable."""
        if session.rules.open:
            return
        forbidden = [name for name in session.subscriptions if session.rules.subscribe(name)]
        if forbidden:
            self._counts["subscriptions_ended_by_rule"] += len(forbidden)
            await self._subscriber.unsubscribe(session, forbidden)

    async def end_all_forbidden(self) -> None:
        """The same for all sessions of the shard, connected or not."""
        for session in list(self._sessions.values()):
            await self.end_forbidden(session)
            await asyncio.sleep(0)  # there may be many
