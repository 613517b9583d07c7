"""The admin API of a cluster: its gateways, who has which shard, and planned moves (G4, G14).

| request | answer |
|---|---|
| `GET /admin/gateways` | the gateways of the site, as this one sees them |
| `GET /admin/shards` | the lease of each shard, its phase at this gateway, and how far behind a standby here is |
| `POST /admin/shards/<shard>/move?to=<gateway>` | 202: this gateway, which owns the shard, moves it |
| `POST /admin/drain` | 202: this gateway moves all its shards to others, and takes no more until it is restarted |

Both commands are answered before their work is done: who asked looks at the leases. A command that is not possible is
refused with 409 and a sentence, and everything with 404 by a gateway that is in no cluster.

A page in a browser may send POST anywhere without asking first, but it cannot hide where it comes from: requests with
`Origin` are refused.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog
from aiohttp import web

from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.errors import GatewayError
from gateway.members.table import GatewayMember, MemberTable
from gateway.observe.admin_http import BadRequest, answer, parameters, refusal
from gateway.observe.standby_metrics import Followed

_NO_CLUSTER = "this gateway is not in a cluster: gateway.cluster.enabled is false"
_FROM_A_PAGE = "pages in a browser may not do this: use `waystation shard` or `waystation gateway`"

log = structlog.get_logger(__name__)


class ClusterControl(Protocol):
    """What the leases of this gateway offer. `move` and `drain` begin a planned move, and raise a GatewayError with a
    sentence for the operator if they cannot."""

    @property
    def table(self) -> LeaseTable: ...

    def phase(self, shard: int) -> str:
        """What the shard does at this gateway, as in :mod:`gateway.cluster.lease_keeper`."""

    def move(self, shard: int, to: str) -> None: ...

    def drain(self) -> None: ...


class ClusterView(NamedTuple):
    """The cluster as this gateway, `name`, sees it. `loop_time`: monotonic seconds, as in `members`. `followed`: the
    shards that it keeps warm."""

    name: str
    control: ClusterControl
    members: MemberTable
    loop_time: Callable[[], float]
    followed: Callable[[], Mapping[int, Followed]] = dict


class ClusterAdmin:
    """The handlers. `view` gives None while the gateway is in no cluster."""

    def __init__(self, view: Callable[[], ClusterView | None]) -> None:
        self._view = view

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/gateways", self._gateways),
            web.get("/admin/shards", self._shards),
            web.post("/admin/shards/{shard}/move", self._move),
            web.post("/admin/drain", self._drain),
        ]

    async def _gateways(self, request: web.Request) -> web.Response:
        parameters(request)
        view = self._view()
        return refusal(_NO_CLUSTER, 404) if view is None else answer(gateways(view))

    async def _shards(self, request: web.Request) -> web.Response:
        parameters(request)
        view = self._view()
        return refusal(_NO_CLUSTER, 404) if view is None else answer(shards(view))

    async def _move(self, request: web.Request) -> web.Response:
        to = parameters(request, "to").get("to", "")
        view = self._view()
        if view is None:
            return refusal(_NO_CLUSTER, 404)
        if "Origin" in request.headers:
            return refusal(_FROM_A_PAGE, 403)
        if not to:
            raise BadRequest("the parameter `to` is missing: ?to=<name of a gateway>")
        shard = _shard(request.match_info["shard"])
        if shard is None or shard >= len(view.control.table):
            return refusal(f"there is no such shard: they are 0 to {len(view.control.table) - 1}", 404)
        return self._begin(request, why_no_move(view, shard, to), lambda: _move(view, shard, to))

    async def _drain(self, request: web.Request) -> web.Response:
        parameters(request)
        view = self._view()
        if view is None:
            return refusal(_NO_CLUSTER, 404)
        if "Origin" in request.headers:
            return refusal(_FROM_A_PAGE, 403)
        return self._begin(request, why_no_drain(view), lambda: _drain(view))

    @staticmethod
    def _begin(request: web.Request, why_not: str, begin: Callable[[], dict[str, Any]]) -> web.Response:
        if why_not:
            return refusal(why_not, 409)
        try:
            begun = begin()
        except GatewayError as error:
            return refusal(str(error), 409)
        log.info("asked by an operator", path=request.path, peer=request.remote, **begun)
        return answer(begun, 202)


def gateways(view: ClusterView) -> dict[str, Any]:
    """`gateway`: who answers; `gateways`, by name: those of the member table, and owners and standbys that it does not
    know, which are `silent`."""
    owned, warm = defaultdict(list), defaultdict(list)
    for lease in _leases(view):
        if lease.owner is not None:
            owned[lease.owner.name].append(lease.shard)
        for name in lease.standbys:
            warm[name].append(lease.shard)
    known = {member.name: member for member in view.members}
    now = view.loop_time()
    found = [
        {
            "name": name,
            "state": "silent" if name not in known else view.members.status(known[name], now),
            **_facts(known.get(name)),
            "shards": owned[name],
            "standby_of": warm[name],
        }
        for name in sorted(known.keys() | owned.keys() | warm.keys())
    ]
    return {"gateway": view.name, "gateways": found}


def _facts(member: GatewayMember | None) -> dict[str, Any]:
    if member is None:
        return {"boot": None, "zone": "", "addresses": {}, "load": None}
    record = member.record
    addresses = {bearer: f"{_host(at.address)}:{at.port}" for bearer, at in record.addresses.items()}
    return {"boot": record.boot, "zone": record.zone, "addresses": addresses, "load": record.load}


def shards(view: ClusterView) -> dict[str, Any]:
    """`gateway`: who answers; `shards`, by number, with the phase at this gateway."""
    followed = view.followed()
    return {
        "gateway": view.name,
        "shards": [_lease(view, lease, followed.get(lease.shard)) for lease in _leases(view)],
    }


def _lease(view: ClusterView, lease: Lease, followed: Followed | None) -> dict[str, Any]:
    """`state`: `owned`; `released`: given up, for `successor` if there is one; or `none`: nobody is known to own it.
    `lag`: of this gateway as a standby, None if it is none; its values are None until they are known."""
    state = "owned" if lease.owner is not None else "released" if lease.released_by is not None else "none"
    return {
        "shard": lease.shard,
        "epoch": lease.epoch,
        "state": state,
        "owner": lease.owner and lease.owner.name,
        "is_fenced": lease.is_fenced,
        "released_by": lease.released_by and lease.released_by.name,
        "successor": lease.successor,
        "standbys": list(lease.standbys),
        "phase": view.control.phase(lease.shard),
        "lag": followed
        and {"is_warm": followed.is_warm, "behind_records": followed.behind, "behind_s": followed.behind_s},
    }


def why_no_move(view: ClusterView, shard: int, to: str) -> str:
    """Why this gateway cannot move the shard to `to`; "" if it can."""
    lease = view.control.table[shard]
    if lease.owner is None:
        return f"nobody owns shard {shard} at this moment: try again"
    if lease.owner.name == to:
        return f"{to} owns shard {shard} already"
    if lease.owner.name != view.name:
        return f"{lease.owner.name} owns shard {shard}: ask it"
    names = [member.name for member in view.members.operational(view.loop_time())]
    if to not in names:
        others = ", ".join(name for name in names if name != view.name) or "none"
        return f"{to} is no gateway that is up; others that are: {others}"
    return ""


def why_no_drain(view: ClusterView) -> str:
    """Why this gateway cannot give its shards to others; "" if it can, or has none."""
    if not any(lease.owner is not None and lease.owner.name == view.name for lease in _leases(view)):
        return ""
    others = [member for member in view.members.operational(view.loop_time()) if member.name != view.name]
    return "" if others else "no other gateway is up that could take the shards"


def _move(view: ClusterView, shard: int, to: str) -> dict[str, Any]:
    view.control.move(shard, to)
    return {"shard": shard, "owner": view.name, "epoch": view.control.table[shard].epoch, "to": to}


def _drain(view: ClusterView) -> dict[str, Any]:
    view.control.drain()
    owned = [lease.shard for lease in _leases(view) if lease.owner is not None and lease.owner.name == view.name]
    return {"gateway": view.name, "shards": owned}


def _leases(view: ClusterView) -> list[Lease]:
    return [view.control.table[shard] for shard in range(len(view.control.table))]


def _shard(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len("65535") else None


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
