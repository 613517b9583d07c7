"""Pages as values: what they say of figures that are there, missing, or hostile."""

from collections import Counter
from typing import Any

from feeds.registry_records import RegistryKey
from gateway.console import clients, overview, redundant_feeds, refusals, render, retained, shards
from gateway.console.history import History
from gateway.console.parts import Banner, Cell, Page, Table
from gateway.console.shards import ShardFacts
from gateway.feeds.answers import feed_detail
from gateway.feeds.table import FeedTable
from gateway.members.table import GatewayMember
from gateway.observe.session_stats import SessionStats
from gateway.shard.messages import Message
from gateway.shard.spool import SpoolSize
from schemas.members import GatewayAddress, GatewayLoad, Heartbeat
from schemas.settings import process_settings
from tests.unit.feeds.feed_beats import beat

HOSTILE = "<script>alert(1)</script>\u202e"
BANNER = Banner("gateway-1", "1", "now", "")


def tables(page: Page) -> list[Table]:
    return [table for section in page.sections for table in section.tables]


def row(table: Table, number: int = 0) -> dict[str, Cell]:
    return dict(zip(table.headings, table.rows[number], strict=True))


def member(name: str, status: overview.Status, age_s: float | None) -> overview.Member:
    record = Heartbeat(
        boot=1,
        seq=1,
        state="up",
        at_us=0,
        zone=HOSTILE,
        addresses={"mqtt": GatewayAddress("h", 1883)},
        load=GatewayLoad(connections=3, cpu=0.25, memory_bytes=10**8, memory=0.01),
    )
    return overview.Member(GatewayMember(name, record, age_s), status, age_s)


def overview_facts(**changed: Any) -> overview.OverviewFacts:
    facts = overview.OverviewFacts(
        gateway="a",
        parts={"kafka": "no broker", "spool": ""},
        stats=SessionStats(),
        history=History(),
        spool=SpoolSize(0, 0),
        retained=0,
        in_flight=7,
        waiting_bytes=0,
        brokers_up=0,
        kafka_errors={"_TRANSPORT": 2, "_FAIL": 0},
        members=[member("b", "silent", None), member("a", "up", 0.2), member(HOSTILE, "gone", 90)],
    )
    return facts._replace(**changed)


def test_the_overview_says_what_is_wrong_and_who_is_there() -> None:
    """Also before the first sample."""
    stages, parts, kafka, members = tables(overview.page(overview_facts()))
    assert {one[1].text for one in stages.rows} == {"–"}
    assert row(parts)["state"] == Cell("no broker", "bad")
    assert [one[0].text for one in kafka.rows][-1] == "errors _TRANSPORT"
    found = {one[0].text: dict(zip(members.headings, one, strict=True)) for one in members.rows}
    assert found["a (this one)"]["heartbeat"].text == "0 s ago"
    assert found["a (this one)"]["addresses"].text == "mqtt h:1883"
    assert found["b"]["state"] == Cell("silent", "bad")
    assert found["b"]["heartbeat"].text == "–"
    shown = render.html(overview.page(overview_facts()), BANNER)
    assert b"<script>alert" not in shown
    assert "\u202e" not in shown.decode()


def test_a_shard_whose_end_is_unknown_has_no_lag() -> None:
    """And no lag is below 0: the end is older than the position."""

    def facts(number: int, end: int | None, fault: str = "") -> ShardFacts:
        return ShardFacts(number, "gateway-1", SessionStats(), 100, end, False, 0, 0, 0, fault)

    (table,) = tables(shards.page([facts(2, 90), facts(0, None), facts(1, 142, "disk full")]))
    assert [one[0].text for one in table.rows] == ["0", "1", "2"]
    assert [row(table, number)["lag"].text for number in range(3)] == ["–", "42", "0"]
    assert row(table, 1)["state"] == Cell("disk full", "bad")


def test_refusals_are_by_reason_the_most_frequent_first() -> None:
    counts = Counter(
        {"not_admitted_password": 2, "not_admitted_jwt": 9, "not_admitted": 11, "http_404": 3, "http_200": 5, "sent": 7}
    )
    found = {table.caption: [cells[0].text for cells in table.rows] for table in tables(refusals.page(counts))}
    assert found["Refused clients, by cause"] == ["jwt", "password"]
    assert found["Answers to HTTP clients, by status"] == ["404"]
    assert len(found) == len(refusals.FAMILIES)
    assert refusals.refused(counts | {"refused_by_rule": 4, "dropped_queue_full": 5}) == 20


def test_a_client_id_is_in_a_command_to_copy_only_if_no_shell_reads_it_as_more() -> None:
    detail = {
        **dict.fromkeys(("user", "peer", "protocol"), ""),
        "state": "offline",
        "since_ms": None,
        "begun_ms": 0,
        "shard": 0,
        "epoch": 1,
        "expiry_s": 9,
        "has_will": False,
        "subscription_list": [],
        "queue": dict.fromkeys(("in_memory", "in_spool", "bytes"), 0),
        "windows": Counter(),
    }
    for client, is_named in (("a/b-1", True), ("a'b", False), ("$(id)", False), ('a"; id', False), ("-x", False)):
        command = clients.client(detail | {"client": client}, (), 0.0).sections[-1].code[0]
        assert (f"source = '{client}'" in command) == is_named
        assert command.count('"') == 2


def test_values_of_retained_messages_are_left_out_unless_they_may_be_shown() -> None:
    message = Message("0-1", HOSTILE, "t", b"secret", 1, True, None, b"", -1, 0, 0)
    facts = retained.RetainedFacts(1, 7, [message], False)
    for shows_values in (True, False):
        for page in (retained.page(facts, {}, 1.0, shows_values), retained.topic(message, 1.0, shows_values)):
            shown = render.html(page, BANNER)
            assert (b"secret" in shown) == shows_values
            assert b"<script>alert" not in shown


def test_a_table_whose_next_page_cannot_be_linked_says_so() -> None:
    """A link has room for the longest name; not for that and a search for one."""
    longest = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 32_767
    message = Message("0-1", "s", longest, b"", 1, True, None, b"", -1, 0, 0)
    facts = retained.RetainedFacts(2, 7, [message], True)
    assert b">Next page</a>" in render.html(retained.page(facts, {"prefix": "a"}, 1.0, False), BANNER)
    shown = render.html(retained.page(facts, {"prefix": longest}, 1.0, False), BANNER)
    assert b">Next page</a>" not in shown
    assert b"Other rows follow" in shown
    assert b"Other rows follow" not in render.html(retained.page(facts._replace(more=False), {}, 1.0, False), BANNER)


def test_feeds_are_shown_with_their_adapters_and_advice() -> None:
    """S1: two adapters on one machine are no safe pair."""
    table = FeedTable(process_settings({}).feeds)
    assert tables(redundant_feeds.page([], 0))[0].empty == "no feed is known"
    for name, slot in (("one", "active"), ("two", "backup")):
        table.apply(RegistryKey("adapter", "radar", name), beat(slot, 1, machine=HOSTILE), 1.0, 0)  # type: ignore[arg-type]
    page = redundant_feeds.page([feed_detail(table, "radar", 1.5)], 1)
    feeds, adapters = tables(page)
    assert row(feeds)["state"] == Cell("redundant", "good")
    assert row(feeds)["active"].text.startswith("one on <script>")
    assert [one[0].text for one in adapters.rows] == ["one", "two"]
    assert "both adapters are on the machine" in page.sections[1].notes[0]
    shown = render.html(page, BANNER).decode()
    assert "<script>alert" not in shown
    assert "\u202e" not in shown
