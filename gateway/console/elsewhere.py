"""For pages about clients in a cluster: their sessions are at the owners of their shards, and where that is."""

from gateway.console.cluster import Cluster
from gateway.console.parts import UNKNOWN, Cell, Section, Table, name
from gateway.console.text import number
from schemas.identity import shard_of

_HEADINGS = ("gateway", "shards")


def note(cluster: Cluster, path: str, client: str, **query: str) -> Section:
    """Says that only sessions of this gateway's shards are here, and where those of other shards are: the page `path`
    of their owners' consoles, with `query`. `client`: an id, or its beginning; "" for none."""
    owned = cluster.owned()
    rows = [
        (name(gateway, cluster.console(gateway, path, **query)), number(count))
        for gateway, count in sorted(owned.items())
        if gateway != cluster.gateway
    ]
    lead = f"This gateway has {owned[cluster.gateway]} of {len(cluster)} shards, and knows only their sessions."
    table = Table("Gateways with the other shards", _HEADINGS, rows, "none")
    return Section("Elsewhere", lead, tables=[table], notes=[_where(cluster, client)] if client else [])


def missing(cluster: Cluster, path: str, client: str) -> Section:
    """Why a client is not found here, with a link to its page at the owner of its shard."""
    shard = shard_of(client, len(cluster))
    owner = cluster.owner(shard)
    cell = name(owner, cluster.console(owner, path, client=client)) if owner else Cell(UNKNOWN)
    table = Table("The client's shard", ("shard", "owner"), [(number(shard), cell)], "")
    return Section("Not found", "This gateway has no session of that client.", tables=[table])


def _where(cluster: Cluster, client: str) -> str:
    shard = shard_of(client, len(cluster))
    owner = cluster.owner(shard)
    at = "at this gateway" if owner == cluster.gateway else f"at {name(owner).text}" if owner else "at no gateway"
    return f"A client whose whole id is {name(client).text} is in shard {shard}, {at}."
