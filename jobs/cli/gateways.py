"""`gateways`, `shards`, `shard move`: the gateways of a cluster, and who serves which shard (G4, G14)."""

import sys
import time
from typing import Annotated, Any

import typer

from jobs.cli.administration import AsJson, Gateways, TokenFile, admin_apis
from jobs.cli.cluster import Cluster
from jobs.cli.context import shared
from jobs.errors import GatewayApiError
from jobs.output import cell, json_text, output
from jobs.text_tables import Column

POLL_S = 0.2
MEGABYTE = 1_000_000


def register(app: typer.Typer) -> None:
    app.command()(gateways)
    app.command()(shards)
    shard = typer.Typer(no_args_is_help=True, help="Move shards between gateways.")
    shard.command()(move)
    app.add_typer(shard, name="shard")

    @shard.callback()
    def of_shards() -> None:
        """Move shards between gateways."""


def gateways(
    context: typer.Context, as_json: AsJson = False, gateway: Gateways = None, token_file: TokenFile = None
) -> None:
    """List the gateways of the cluster: state, load, and how many shards each owns and keeps warm.

    A gateway is `silent` if no heartbeat of it has been read for `gateway.cluster.timeout_s`. One that has ended in
    order is `gone`, and stays on the list.

    Example: `waystation gateways`
    """
    found = Cluster(admin_apis(shared(context), gateway, token_file)).gateways()
    if as_json:
        sys.stdout.write(json_text({"gateways": found}))
        return
    output().show_table(_GATEWAY_COLUMNS, [_gateway_cells(one) for one in found], title="gateways")


_GATEWAY_COLUMNS = [
    *(Column(heading) for heading in ("gateway", "state", "zone", "mqtt")),
    *(Column(heading, is_number=True) for heading in ("connections", "cpu", "memory", "shards", "standby of")),
]


def _gateway_cells(one: dict[str, Any]) -> list[str]:
    addresses, load = one["addresses"], one["load"]
    measured = ["", "", ""]
    if load is not None and one["state"] not in ("gone", "silent"):
        memory = f"{load['memory_bytes'] / MEGABYTE:.0f} MB"
        measured = [str(load["connections"]), f"{load['cpu']:.2f}", memory]
    texts = [one["name"], one["state"], one["zone"], addresses.get("mqtt") or addresses.get("mqtts")]
    return [*map(cell, texts), *measured, str(len(one["shards"])), str(len(one["standby_of"]))]


def shards(
    context: typer.Context, as_json: AsJson = False, gateway: Gateways = None, token_file: TokenFile = None
) -> None:
    """List the shards: who owns each, in which epoch, who keeps it warm, and how far behind that one is.

    The phase is that at the owner: `starting`, `serving`, or `freezing` while it is being moved. It is empty if the
    owner does not answer. A shard that nobody owns is `released` while it is being moved, else `none`. A standby is
    `cold` if a takeover by it would have much to read. Nothing is said of one that does not answer.

    Example: `waystation shards`
    """
    found = Cluster(admin_apis(shared(context), gateway, token_file)).shards()
    if as_json:
        sys.stdout.write(json_text({"shards": found}))
        return
    output().show_table(_SHARD_COLUMNS, [_shard_cells(one) for one in found], title="shards")


_SHARD_COLUMNS = [
    Column("shard", is_number=True),
    Column("owner"),
    Column("epoch", is_number=True),
    Column("phase"),
    Column("standbys"),
]


def _shard_cells(one: dict[str, Any]) -> list[str]:
    phase = one["phase"] if one["state"] == "owned" else one["state"]
    standbys = ", ".join(_standby(name, one["lags"].get(name)) for name in one["standbys"])
    return [str(one["shard"]), cell(one["owner"]), str(one["epoch"]), cell(phase), cell(standbys)]


def _standby(name: str, lag: dict[str, Any] | None) -> str:
    if lag is None:
        return name
    behind = "" if lag["behind_s"] is None else f"{lag['behind_s']:.1f} s behind"
    return f"{name} ({', '.join(filter(None, ('' if lag['is_warm'] else 'cold', behind)))})"


def move(
    context: typer.Context,
    shard: Annotated[int, typer.Argument(min=0, help="Number of the shard, as `waystation shards` shows it.")],
    to: Annotated[str, typer.Argument(metavar="GATEWAY", help="Name of the gateway that is to own it.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until the shard has moved.")] = 30.0,
    gateway: Gateways = None,
    token_file: TokenFile = None,
) -> None:
    """Move a shard to another gateway, and wait until that one serves it. Its sessions move with it.

    Gateways balance the shards by themselves, so a shard that was moved may move again.

    Example: `waystation shard move 3 gateway-2`
    """
    cluster = Cluster(admin_apis(shared(context), gateway, token_file))
    before = cluster.shard(shard)
    cluster.gateway(to)
    if before["owner"] is None:
        raise GatewayApiError(f"nobody owns shard {shard} at this moment: try again once `waystation shards` shows who")
    if before["owner"] != to:
        cluster.api_of(before["owner"]).move(shard, to)
        _await_owner(cluster, shard, before, to, timeout)
    now = cluster.shard(shard)
    output().print(f"shard {shard}: {to} owns it, epoch {now['epoch']}", markup=False)


def _await_owner(cluster: Cluster, shard: int, before: dict[str, Any], to: str, timeout_s: float) -> None:
    """Raises GatewayApiError if it gets another owner, or keeps the present one for too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        now = cluster.shard(shard)
        if now["owner"] == to and now["is_fenced"]:
            return
        if now["owner"] not in (None, to, before["owner"]):
            raise GatewayApiError(f"shard {shard} went to {now['owner']} instead of {to}: check `waystation gateways`")
        if time.monotonic() > deadline:
            owner = now["owner"] or "nobody"
            raise GatewayApiError(
                f"shard {shard} has not moved to {to} within {timeout_s:g} s, and {owner} owns it: it may still move; "
                "check `waystation shards` and the log of its owner"
            )
        time.sleep(POLL_S)
