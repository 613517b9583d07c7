"""The figures of the mesh's demo, from what was counted and what the agents' logs and statuses say. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from edge.agent.way import Step
from jobs.demo import mesh_ways
from jobs.demo.mesh_account import Accepted, MeshAccount, quantile
from jobs.demo.mesh_plan import Leave, MeshPlan, agent_of
from jobs.demo.mesh_ways import LoggedStep, Way

Outage = tuple[str, datetime, datetime]
MUST_BE_ZERO: Final = {"lost": "lost", "doubled": "doubled", "stray": "wrong recipient"}
"""Figures that decide the exit status, with their labels."""


class Told(NamedTuple):
    """A message, the id of its bundle, its way as the logs have it, and all its steps in them."""

    message: Accepted
    bundle: str
    way: Way
    steps: list[LoggedStep]


def ways(account: MeshAccount, logs: Mapping[str, Sequence[Step]]) -> list[Told]:
    """The messages whose way the logs tell."""
    by_message, found = mesh_ways.by_message(logs), []
    for message in account.messages:
        steps = by_message.get(message.id, [])
        recipient = agent_of(message.to) if message.to else ""
        way = mesh_ways.way_of(agent_of(message.sender), recipient, steps)
        bundle = mesh_ways.bundle_of(steps)
        if way is not None and bundle is not None:
            found.append(Told(message, bundle, way, steps))
    return found


def figures(
    plan: MeshPlan, account: MeshAccount, told: list[Told], statuses: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """In the form of the JSON output. Delays are minutes of the flight plan."""
    verdict, messages, outages = account.verdict(), account.messages, plan.outages()
    meshed, direct = [one for one in told if one.way.by_mesh], [one for one in told if not one.way.by_mesh]
    return {
        "airports": len(plan.airports),
        "aircraft": len(plan.aircraft),
        "flights": sum(isinstance(action, Leave) for _, action in plan.steps),
        "outages": len(outages),
        "airports_without_uplink": len({airport for airport, _, _ in outages}),
        "outage_hours": round(sum((until - since for _, since, until in outages), timedelta()) / timedelta(hours=1), 1),
        "accepted": verdict.accepted,
        "to_agents": sum(bool(message.to) for message in messages),
        "without_uplink": sum(_is_without_uplink(outages, message) for message in messages),
        "of_aircraft": sum(message.sender in set(plan.aircraft) for message in messages),
        "arrived": verdict.arrived,
        "by_server_path": len(direct),
        "by_mesh": len(meshed),
        "by_mesh_to_the_agent": sum(not one.way.by_platform for one in meshed),
        "by_mesh_and_platform": sum(one.way.by_platform for one in meshed),
        "way_unknown": verdict.arrived - len(told),
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "stray": verdict.stray,
        "delay_min": {
            "all": _delays(account, messages),
            "server_path": _delays(account, [one.message for one in direct]),
            "mesh": _delays(account, [one.message for one in meshed]),
        },
        "hops": {str(links): count for links, count in mesh_ways.hops(one.way for one in told).items()},
        "claims_granted": _claims(statuses, "claims_granted"),
        "claims_refused": _claims(statuses, "claims_refused"),
    }


def journey_of(plan: MeshPlan, told: Iterable[Told]) -> Told | None:
    """The message to show: one that came by the mesh and through the platform, if there is one from an airport that had
    no uplink, to another agent, over the most links."""
    outages = plan.outages()

    def rank(one: Told) -> tuple[bool, bool, bool, int]:
        without_uplink = _is_without_uplink(outages, one.message)
        return one.way.by_platform, without_uplink, bool(one.message.to), one.way.links

    return max((one for one in told if one.way.by_mesh), key=rank, default=None)


def _is_without_uplink(outages: Iterable[Outage], message: Accepted) -> bool:
    """Whether it was written at an airport that had no uplink then."""
    return any(airport == message.sender and since <= message.at < until for airport, since, until in outages)


def _delays(account: MeshAccount, messages: Iterable[Accepted]) -> dict[str, float | None]:
    delays = [delay for message in messages if (delay := account.delay(message)) is not None]
    return {name: _minutes(quantile(delays, share)) for name, share in (("median", 0.5), ("p99", 0.99))}


def _minutes(delay: timedelta | None) -> float | None:
    return None if delay is None else round(delay / timedelta(minutes=1), 1)


def _claims(statuses: Mapping[str, Mapping[str, Any]], name: str) -> int:
    return sum(status.get("uplink", {}).get(name, 0) for status in statuses.values())
