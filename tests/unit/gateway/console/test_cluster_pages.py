"""What the pages of a cluster's gateway say of shards, their owners and other gateways (G2, G4, G14)."""

import re
from typing import Any

from gateway.cluster.lease_table import Lease
from gateway.console import elsewhere, render
from gateway.console.all_shards import AllShardsFacts, ChangeSeen, OneShard, of_page, page
from gateway.console.cluster import Cluster
from gateway.console.owner_changes import OwnerChange
from gateway.console.parts import ROWS, Banner, Cell
from gateway.members.table import MemberTable
from gateway.observe.session_stats import SessionStats
from gateway.observe.standby_metrics import Followed
from schemas.identity import shard_of
from schemas.leases import Claimant
from schemas.members import GatewayAddress
from tests.unit.gateway.console.test_view_models import BANNER, HOSTILE, row, tables
from tests.unit.gateway.observe.leases_seen import LeasesSeen

A, B = Claimant("a", 1), Claimant("b", 2)


def shown(lease: Lease, **changed: Any) -> OneShard:
    return OneShard(lease, "served", lease.standbys, False, "idle", None, None, "")._replace(**changed)


def facts(**changed: Any) -> AllShardsFacts:
    return AllShardsFacts([], 0, 0, {}, 0, 0, [], [])._replace(**changed)


def test_a_shard_is_shown_with_its_owner_and_what_is_wrong() -> None:
    stats = SessionStats()
    shards = [
        shown(Lease(0, 3, A, ("b",), True), phase="serving", stats=stats),
        shown(Lease(1, 9, B, ("a (silent)",), True), state="owner_silent", is_alone=True, href="http://b:1/console"),
        shown(Lease(2, 4, None, (), False, B, HOSTILE), state="no_owner"),
        shown(Lease(3), state="no_owner"),
        shown(Lease(4, 5, A), state="starting", phase="starting"),
        shown(Lease(5, 5, A), phase="standby", lag=Followed(1, True, 0.25)),
        shown(Lease(6, 5, A), phase="standby", lag=Followed(4_000, False, 61.24)),
        shown(Lease(7, 5, A), phase="standby", lag=Followed(None, False)),
    ]
    built = page(facts(shown=shards, total=5, states={"no_owner": 2}), 0.0)
    (table, changes, here) = tables(built)
    assert ("without owner", "2") in built.sections[0].figures
    assert row(table)["owner"] == Cell("a", "name", "process 1")
    assert [row(table)[one].text for one in ("epoch", "here", "connected", "state")] == ["3", "serving", "0", "served"]
    assert row(table, 1)["owner"].href == "http://b:1/console"
    assert row(table, 1)["state"] == Cell("owner is silent", "bad")
    assert row(table, 1)["standbys"].kind == "bad"
    assert [row(table, 1)[one].text for one in ("here", "connected", "queued", "bytes")] == ["–"] * 4
    assert row(table, 2)["state"].text.startswith("no owner: <script>")
    assert row(table, 3)["owner"].text == "–"
    assert row(table, 4)["state"].text == "owner starts"
    assert row(table, 5)["here"] == Cell("standby, 1 record and 0.2 s behind")
    assert row(table, 6)["here"] == Cell("standby, 4000 records and 61.2 s behind", "bad")
    assert row(table, 7)["here"] == Cell("standby"), "it does not know yet"
    assert not table.more
    assert (changes.empty, here.empty) == ("none yet", "this gateway has no shard")
    assert b"<script>alert" not in render.html(built, BANNER)


def test_takeovers_say_who_from_whom_and_why() -> None:
    changes = [
        ChangeSeen(OwnerChange(5.0, 3, 7, A, B, "lost", 0.009), 2.0),
        ChangeSeen(OwnerChange(4.0, 2, 2, None, Claimant(HOSTILE, 1), "first"), 3.0),
        ChangeSeen(OwnerChange(3.0, 1, 3, Claimant("b", 1), B, "planned", 0.05), 4.0),
        ChangeSeen(OwnerChange(2.0, 1, 2, A, A, "again", 1.5), 5.0),
    ]
    built = page(facts(changes=changes), 1_800_000_000.0)
    table = tables(built)[1]
    assert [cell.text for cell in table.rows[0]] == ["2 s ago", "3", "a", "b", "7", "owner lost", "9 ms"]
    assert row(table)["when"].title == "2027-01-15 07:59:58 UTC"
    assert row(table, 1)["serves after"].text == row(table, 1)["from"].text == "–"
    assert [row(table, n)["reason"].text for n in (2, 3)] == ["planned, same gateway restarted", "claimed again"]
    assert b"<script>alert" not in render.html(built, BANNER)


def test_shards_are_shown_in_pages() -> None:
    leases = [Lease(shard) for shard in range(ROWS + 5)]
    first = [shown(lease) for lease in of_page(leases, 0)]
    (table, *_) = tables(page(facts(shown=first, total=len(leases)), 0.0))
    assert (len(table.rows), table.more) == (ROWS, f"/console/shards?first={ROWS}")
    assert table.caption == f"Shards 0 to {ROWS - 1} of {ROWS + 5}"
    rest = [shown(lease) for lease in of_page(leases, ROWS)]
    (table, *_) = tables(page(facts(shown=rest, first=ROWS, total=len(leases)), 0.0))
    assert (len(table.rows), table.more) == (5, "")
    assert of_page(leases, 10**9) == []


def seen(shards: int = 4) -> tuple[LeasesSeen, Cluster]:
    """The gateway `a` and what it has read; it is now 100 s."""
    members = MemberTable(10, 2.0)
    leases = LeasesSeen("a", shards, members, lambda: 100.0)
    return leases, Cluster("a", leases.sources, members)


def test_the_strip_names_the_shards_that_nobody_serves() -> None:
    leases, cluster = seen(30)
    leases.member("a")
    for shard in range(30):
        leases.claim(shard, 1, "a" if shard < 10 else HOSTILE)
    assert cluster.warning(100.0) == (
        f"shards with a silent owner ({HOSTILE.replace(chr(0x202E), chr(92) + 'u202e')}): "
        "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, … (20 in all)"
    )
    leases.member(HOSTILE)
    assert cluster.warning(100.0) == "", "an owner that starts is there"
    leases.release(4, 2, "a")
    leases.release(7, 2, "a")
    assert cluster.warning(100.0) == "shards without an owner: 4, 7"
    text = render.html(page(facts(), 0.0), Banner("a", "1", "now", "", "4 <without> an owner")).decode()
    assert "Ready</b>" in text
    assert '<b class="bad">Cluster</b> 4 &lt;without&gt; an owner' in text
    assert '<b class="bad">' not in render.html(page(facts(), 0.0), BANNER).decode()


def test_a_standby_that_is_missing_is_marked() -> None:
    leases, cluster = seen()
    leases.member("a")
    leases.claim(0, 1, "a")
    leases.serves(0, 1, "a", "b", "c")
    (lease, *_) = cluster.leases()
    assert cluster.standbys(lease, 100.0) == ["b (unknown)", "c (unknown)"]
    assert cluster.is_alone(lease, 100.0)
    leases.member("b", state="draining")
    leases.member("c")
    assert cluster.standbys(lease, 100.0) == ["b (draining)", "c (cold)"]
    leases.member("c", seq=1, warm=[0])
    assert cluster.standbys(lease, 100.0) == ["b (draining)", "c (warm)"]
    assert not cluster.is_alone(lease, 100.0)
    assert cluster.followed() == {"b": 1, "c": 1}
    leases.claim(1, 1, "b")
    leases.serves(1, 1, "b", "a")
    leases.phases[0] = "serving"
    assert [cluster.phase(shard) for shard in range(3)] == ["serving", "standby", "idle"]


def test_links_lead_only_where_a_gateway_says_that_its_console_is() -> None:
    """Its record is from Kafka: what is no host name leads nowhere."""
    leases, cluster = seen()
    places = {
        "b": ("gw-2.example.org", "http://gw-2.example.org:9464/console"),
        "c": ("2001:db8::1", "http://[2001:db8::1]:9464/console"),
        "d": ("x@evil.example/", ""),
        "e": ("javascript:alert(1)", ""),
        "a": ("here.example.org", ""),
    }
    for name, (address, _) in places.items():
        leases.member(name, addresses={"console": GatewayAddress(address, 9464)})
    leases.member("f")
    for name, (_, link) in places.items():
        assert cluster.console(name, "/console") == link, name
    assert cluster.console("f", "/console") == cluster.console("nobody", "/console") == ""
    assert cluster.console("b", "/console/client", client='"&') == (
        "http://gw-2.example.org:9464/console/client?client=%22%26"
    )


def test_clients_of_other_shards_are_looked_for_at_their_owners() -> None:
    leases, cluster = seen(2)
    here, there, nowhere = (next(c for c in map(str, range(99)) if shard_of(c, 2) == n) for n in (0, 1, 1))
    leases.claim(0, 1, "a")
    leases.claim(1, 1, "b")
    leases.member("b", addresses={"console": GatewayAddress("b.test", 9464)})
    section = elsewhere.note(cluster, "/console/clients", there, prefix=there, state="offline")
    assert section.lead == "This gateway has 1 of 2 shards, and knows only their sessions."
    assert row(section.tables[0])["gateway"].href == f"http://b.test:9464/console/clients?prefix={there}&state=offline"
    assert section.notes == [f"A client whose whole id is {there} is in shard 1, at b."]
    assert elsewhere.note(cluster, "/", here).notes == [
        f"A client whose whole id is {here} is in shard 0, at this gateway."
    ]
    assert not elsewhere.note(cluster, "/", "").notes
    (found,) = elsewhere.missing(cluster, "/console/client", there).tables
    assert row(found)["owner"].href == f"http://b.test:9464/console/client?client={there}"
    leases.release(1, 2, "b")
    assert re.search("at no gateway", elsewhere.note(cluster, "/", nowhere).notes[0])
    (found,) = elsewhere.missing(cluster, "/console/client", nowhere).tables
    assert row(found)["owner"].text == "–"
