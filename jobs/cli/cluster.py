"""The cluster of gateways as a command sees it: through the admin API of whichever of them answers."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jobs.cli.gateway_api import GatewayApi
from jobs.errors import GatewayApiError, GatewayUnreachable

Found = TypeVar("Found")

NAME_IT = "give the address of its metrics with --gateway"


class Cluster:
    """`apis`: the gateways that may be asked, at least one. All methods raise GatewayApiError: none of the gateways
    answers, or the one that does is in no cluster."""

    def __init__(self, apis: Sequence[GatewayApi]) -> None:
        self._apis = apis

    def gateways(self) -> list[dict[str, Any]]:
        """All gateways of the cluster by name, those that cannot be asked included."""
        found: list[dict[str, Any]] = self._ask(lambda api: api.gateways())["gateways"]
        return found

    def shards(self) -> list[dict[str, Any]]:
        """The lease of each shard; `phase` is that at its owner, None if the owner cannot be asked. `lags` has those of
        the standbys that can be asked, by name: `is_warm`, `behind_records`, `behind_s`; None for what they do not
        know yet."""
        views: list[dict[str, Any]] = []
        for api in self._apis:
            try:
                views.append(api.shards())
            except GatewayUnreachable as error:
                silent = error
        if not views:
            raise silent
        phases = {(view["gateway"], one["shard"]): one["phase"] for view in views for one in view["shards"]}
        latest = max(views, key=lambda view: sum(one["epoch"] for one in view["shards"]))
        lags = {(view["gateway"], one["shard"]): one.get("lag") for view in views for one in view["shards"]}
        return [
            {
                **{key: value for key, value in one.items() if key != "lag"},
                "phase": phases.get((one["owner"], one["shard"])),
                "lags": {name: lag for name in one["standbys"] if (lag := lags.get((name, one["shard"]))) is not None},
            }
            for one in latest["shards"]
        ]

    def shard(self, number: int) -> dict[str, Any]:
        """One of them."""
        found = self.shards()
        if number >= len(found):
            raise GatewayApiError(f"there is no shard {number}: they are 0 to {len(found) - 1}")
        return found[number]

    def gateway(self, name: str) -> dict[str, Any]:
        """What the others know of a gateway. Raises GatewayApiError if they know none of that name."""
        known = {one["name"]: one for one in self.gateways()}
        if name not in known:
            raise GatewayApiError(f"there is no gateway {name}: there are {', '.join(known)}")
        return known[name]

    def api_of(self, name: str) -> GatewayApi:
        """The gateway of this name itself. Raises GatewayApiError if it is not among those that may be asked."""
        for api in self._apis:
            if api.name == name:
                return api
        for api in self._apis:
            if not api.name and _name_of(api) == name:
                return api
        self.gateway(name)
        raise GatewayApiError(f"{name} itself must be asked, and its address is not known: {NAME_IT}")

    def _ask(self, ask: Callable[[GatewayApi], Found]) -> Found:
        """What the first that answers says."""
        for api in self._apis:
            try:
                return ask(api)
            except GatewayUnreachable as error:
                silent = error
        raise silent


def _name_of(api: GatewayApi) -> str | None:
    try:
        return str(api.gateways()["gateway"])
    except GatewayUnreachable:
        return None
