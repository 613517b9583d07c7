"""Three gateways share the shards of a site; whatever happens to them under load, their clients get what they are owed
(Q1, Q6, Q7, Q8, Q9, G4, G6, G7, G8, G9, G14, R8).

Clients of all kinds connect through any of them (tests/acceptance/site_soak.py). One fault a run, all with `make soak`;
TEST_SEED repeats a run's choices.

What others have suffered, and what shows here that we do not. Those that `unit/gateway/leases/test_reported_elsewhere.py`
shows in virtual time are marked *:

| problem | test |
|---|---|
| survivors that deliver nothing for minutes (tbmq#181) * | each fault: what is owed comes within `site_soak.OWED_S` |
| a queue lost while it moves and its client comes back elsewhere (vernemq#2488) * | `integration/gateway/test_gateways_of_a_site.py::test_a_queue_moves_while_its_client_comes_back_elsewhere`; `shards_moved` |
| a packet id used again after a reconnect, so that one PUBACK clears two (emqx#16296) * | each fault: `FaithfulClient.faults` (no packet id is given to two messages); `slow` has few packet ids in flight, and is sent on |
| offsets committed past messages that were not delivered (tbmq#320) * | `owner_killed`, `disk_lost`: `absent` gets all when it comes back |
| groups that give to dead members, or drop their queue (vernemq#38, emqx#8433, emqx#12257) * | `unit/gateway/shard/test_late_share_messages.py`; each fault: `SiteSoak.missing_shared`, `_check_shared`; members are anywhere, and one roams |
| a short loss of the link wipes routes (emqx#14248) * | `gateways_cut_from_one_another`; `unit/gateway/shard/test_late_routes.py` |
| a client id taken over across gateways times out (emqx#13124) | `integration/gateway/test_gateways_of_a_site.py::test_a_client_takes_over_its_session_at_another_gateway` |
| look-ups name a dead owner (pulsar#23011) * | `integration/gateway/test_gateways_of_a_site.py::test_the_access_point_names_no_dead_gateway` |
| retained lost if publish and subscribe meet different gateways within a second (vernemq#2251) | `integration/gateway/test_gateways_of_a_site.py::test_retained_is_there_at_another_gateway_at_once` |
| a herd of reconnects fells the next gateway (freenet-core#3210) | `integration/gateway/test_gateways_of_a_site.py::test_a_herd_finds_its_homes`, `unit/gateway/host/test_connect_herd.py` |
"""  # noqa: E501

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.gateway_site import NAMES, Site
from jobs.stack.process import wait_until
from schemas.leases import Claimant
from schemas.topics import NO_GROUP
from tests import draw, namespaces
from tests.acceptance import gateway_faults as faults
from tests.acceptance.gateway_faults import Fault, Stage
from tests.acceptance.site_soak import SiteSoak
from tests.gateway_site import ALL, CuttableSite, SiteBroker, site_broker
from tests.namespace_site import NamespaceSite
from tests.namespaces import Namespace

BEFORE_S: Final = 1.5
AFTER_S: Final = 1.5
LOG_TAIL: Final = 12_000
CLOCKS: Final = {NAMES[0]: 5.0, NAMES[1]: -5.0}
CLAIMS_READ_S: Final = 20.0
FENCE_PREFIX: Final = b"fence/"


class Case(NamedTuple):
    """`clocks`: by how much those of gateways are wrong, seconds; `cuttable_links`: whether gateways reach one another
    by ways that can be cut; `has_dispatcher`: whether clients come through a dispatcher too."""

    fault: Fault
    clocks: Mapping[str, float] = {}
    cuttable_links: bool = False
    has_dispatcher: bool = False


CASES: Final = {
    "nothing": Case(faults.nothing),
    "owner killed": Case(faults.owner_killed),
    "standby killed": Case(faults.standby_killed),
    "owner and standby killed": Case(faults.owner_and_standby_killed),
    "two killed in a row": Case(faults.two_killed_in_a_row),
    "disk lost": Case(faults.disk_lost),
    "owner stands still": Case(faults.owner_stands_still),
    "two stand still": Case(faults.two_stand_still),
    "owner cut from Kafka": Case(faults.owner_cut_from_kafka),
    "standby cut from Kafka": Case(faults.standby_cut_from_kafka),
    "gateways cut from one another": Case(faults.gateways_cut_from_one_another, cuttable_links=True),
    "successor killed in a move": Case(faults.successor_killed_in_a_move),
    "shards moved": Case(faults.shards_moved),
    "one added, one removed": Case(faults.one_added_one_removed),
    "all replaced": Case(faults.all_replaced),
    "updated to the next release": Case(faults.updated),
    "dispatcher killed": Case(faults.dispatcher_killed, has_dispatcher=True),
    "dispatcher replaced": Case(faults.dispatcher_replaced, has_dispatcher=True),
    "owner killed, machine lost": Case(faults.owner_killed, cuttable_links=True),
    "owner killed, clocks apart": Case(faults.owner_killed, clocks=CLOCKS),
}

PACKETS_DROPPED: Final = (
    faults.owner_cut_from_kafka,
    faults.standby_cut_from_kafka,
    faults.gateways_cut_from_one_another,
)


async def live_through(site: CuttableSite, fault: Fault) -> SiteSoak:
    """The soak, with the fault in its middle; returns once everybody has what it is owed."""
    rng = draw.generator(f"fault of gateways {fault}")
    soak = SiteSoak(site, rng)
    try:
        await soak.begin()
        await asyncio.sleep(BEFORE_S)
        soak.check()
        if site.is_cluster:
            await asyncio.to_thread(site.all_have_standbys)
        await fault(Stage(site, soak, rng))
        soak.check()
        await asyncio.sleep(AFTER_S)
        await soak.end()
    finally:
        await soak.close()
    return soak


def fence_writers(site: Site) -> dict[tuple[int, int], set[Claimant]]:
    """Who has written a fence on the topic `sessions`, by shard and epoch."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": NO_GROUP, "enable.auto.commit": False})
    found: dict[tuple[int, int], set[Claimant]] = {}
    try:
        for shard in range(site.shards):
            of_shard = TopicPartition(site.topics.sessions, shard, 0)
            _, end = consumer.get_watermark_offsets(of_shard, 30)
            consumer.assign([of_shard])
            while consumer.position([of_shard])[0].offset < end:
                for record in consumer.consume(1_000, 0.5):
                    key, value = record.key() or b"", record.value()
                    if key.startswith(FENCE_PREFIX) and value is not None:
                        fence = json.loads(value)
                        epoch = int(key.removeprefix(FENCE_PREFIX))
                        found.setdefault((shard, epoch), set()).add(Claimant(fence["name"], fence["boot"]))
    finally:
        consumer.close()
    return found


def check_owners(site: Site) -> None:
    """An epoch of a shard has one owner, and nobody else has begun it."""
    writers_of = fence_writers(site)
    wait_until(lambda: writers_of.keys() <= site.watch.owners_by_epoch().keys(), CLAIMS_READ_S)  # it reads behind
    owners = site.watch.owners_by_epoch()
    several = {of: claimants for of, claimants in owners.items() if len(claimants) > 1}
    assert not several, f"epochs with several owners: {several}"
    for of, writers in writers_of.items():
        assert writers == owners.get(of), f"shard and epoch {of}: begun by {writers}, owned by {owners.get(of)}"


def survives(site: CuttableSite, name: str, fault: Fault) -> str:
    """Nothing acknowledged is lost, nothing at QoS 2 comes twice, order holds, wills come once, retained messages are
    right, and an epoch has one owner. Returns what was checked, for people. Raises AssertionError."""
    try:
        site.start(*NAMES)
        if site.dispatcher is not None:
            site.dispatcher.start()
        soak = asyncio.run(live_through(site, fault))
        assert not site.crashed()
        check_owners(site)
    except BaseException as error:
        error.add_note(f"{site.watch.leases()}\n{site.log_tails(LOG_TAIL)}")
        raise
    return f"{name}: {sum(map(len, soak.sent))} messages; checked: {dict(soak.checks)}"


@draw.gateway_fault
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", CASES)
def test_what_is_owed_comes_whatever_happens(
    tmp_path: Path, of_site: SiteBroker, unique_prefix: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    with CuttableSite(
        tmp_path,
        of_site,
        unique_prefix,
        ALL,
        clocks=case.clocks,
        cuttable_links=case.cuttable_links,
        has_dispatcher=case.has_dispatcher,
    ) as site:
        checked = survives(site, name, case.fault)
    with capsys.disabled():
        print(f"\n{checked}")  # noqa: T201


@draw.gateway_fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", PACKETS_DROPPED, ids=lambda fault: fault.__name__)
def test_what_is_owed_comes_though_packets_are_dropped(
    tmp_path: Path,
    java_home: Path,
    jars: Path,
    unique_prefix: str,
    fault: Fault,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same, where the network itself is cut: also connections cannot be made."""
    namespaces.required()

    def live(network: Namespace) -> str:
        with (
            site_broker(tmp_path / "kafka", java_home) as broker,
            NamespaceSite(network, tmp_path, broker, unique_prefix) as site,
        ):
            return survives(site, fault.__name__, fault)

    (tmp_path / "kafka").mkdir()
    with Namespace("site") as network:
        checked = network.call(live, network)
    with capsys.disabled():
        print(f"\n{checked}")  # noqa: T201


@draw.gateway_fault
@pytest.mark.timeout(180)
def test_one_gateway_without_a_cluster_is_killed_and_started_again(
    tmp_path: Path, of_site: SiteBroker, unique_prefix: str
) -> None:
    """The same clients, and what they are owed, with one gateway that has all shards."""
    with CuttableSite(tmp_path, of_site, unique_prefix, NAMES[:1], cluster=False) as site:
        site.start()
        asyncio.run(live_through(site, faults.restarted_alone))
