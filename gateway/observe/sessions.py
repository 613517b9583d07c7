"""Sessions for operators: a paged list, and one session in detail. Neither shows payloads."""

import heapq
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from gateway.observe.session_stats import slices
from gateway.shard.session import Session
from gateway.shard.shard import Shard

State = Literal["connected", "offline"]


class Wanted(NamedTuple):
    """Selects sessions: client ids that begin with `prefix` and sort after `after`, at most `limit`, in client id
    order; only those in `state` if given."""

    prefix: str
    after: str
    state: State | None
    limit: int


async def page(shards: Sequence[Shard], wanted: Wanted) -> dict[str, Any]:
    """`sessions`; `total`, the number of all sessions with that prefix and state; and `next`, the client id after which
    the next page starts, None at the end."""
    best: list[tuple[str, Session]] = []
    total = 0
    async for sessions in slices(shards):
        found = [
            (s.client, s)
            for s in sessions
            if not s.is_group and s.client.startswith(wanted.prefix) and _is_in(s, wanted.state)
        ]
        total += len(found)
        behind = [one for one in found if one[0] > wanted.after]
        best = heapq.nsmallest(wanted.limit + 1, [*best, *behind], key=lambda one: one[0])
    shown = best[: wanted.limit]
    more = len(best) > wanted.limit
    return {"sessions": [summary(s) for _, s in shown], "total": total, "next": shown[-1][0] if more else None}


def summary(session: Session) -> dict[str, Any]:
    """One session in brief. Times are ms since the epoch."""
    return {
        "client": session.client,
        "state": "offline" if session.link is None else "connected",
        "user": session.user,
        "peer": session.peer,
        "protocol": session.protocol,
        "since_ms": session.epoch // 1000 if session.link is not None else session.disconnected_ms,
        "subscriptions": len(session.subscriptions),
        "queued_messages": session.queued,
        "queued_bytes": session.queued_bytes,
        "unacknowledged": session.unacknowledged,
    }


def detail(session: Session) -> dict[str, Any]:
    """Everything an operator may want to know about a session."""
    return {
        **summary(session),
        "shard": session.shard,
        "epoch": session.epoch,
        "begun_ms": session.born_us // 1000,
        "expiry_s": session.expiry_s,
        "has_will": session.will is not None,
        "queue": {
            "in_memory": len(session.queue) + len(session.tail),
            "in_spool": session.backlog,
            "bytes": session.queued_bytes,
        },
        "windows": {
            "to_client": session.unacknowledged,
            "to_client_maximum": session.receive_maximum,
            "to_client_released": sum(delivery.released for delivery in session.in_flight.values()),
            "from_client_received": len(session.inbound.received),
            "from_client_on_way": len(session.inbound.publishing),
        },
        "subscription_list": [
            {
                "filter": record.filter,
                "qos": record.qos,
                "no_local": record.no_local,
                "retain_as_published": record.retain_as_published,
                "retain_handling": record.retain_handling,
                "identifier": record.identifier,
                "effective_ms": record.effective_ms,
            }
            for record in (subscription.record for subscription in session.subscriptions.values())
        ],
    }


def _is_in(session: Session, state: State | None) -> bool:
    return state is None or (session.link is None) == (state == "offline")
