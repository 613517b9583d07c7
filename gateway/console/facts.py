"""Gathers what each page shows from the gateway's parts, on the event loop, and makes its view model.

Sessions and retained messages may be many: they are looked at in slices, by one request at a time, and a page has at
most ROWS of them.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gateway.console import (
    all_shards,
    applications,
    clients,
    elsewhere,
    messages,
    overview,
    redundant_feeds,
    refusals,
    retained,
    shards,
)
from gateway.console.asking import Applications
from gateway.console.asking_ledger import LedgerQuestions
from gateway.console.cluster import Cluster
from gateway.console.history import History
from gateway.console.parts import ROWS, Action, Page, Section
from gateway.console.shards import ShardFacts
from gateway.feeds.answers import feed_detail
from gateway.feeds.table import FeedTable
from gateway.members.table import MemberTable
from gateway.observe.metrics import Sources
from gateway.observe.readiness import Readiness
from gateway.observe.session_stats import SessionStats, SessionStatsCollector, slices
from gateway.observe.sessions import State, Wanted, detail, summary
from gateway.observe.sessions import page as sessions_page
from gateway.shard.session import Session
from gateway.shard.shard_home import ShardHome

QUEUES = 20
"""Sessions listed among the longest queues."""


class NotFound(LookupError):
    """There is no such client or topic; `section` says so."""

    def __init__(self, section: Section) -> None:
        super().__init__(section.lead)
        self.section = section


class ConsoleFacts:
    """Makes the pages, each from its query. `now` gives monotonic seconds; `cluster` is None if gateways do not share
    the shards."""

    def __init__(
        self,
        sources: Sources,
        stats: SessionStatsCollector,
        readiness: Readiness,
        members: MemberTable,
        feeds: FeedTable,
        history: History,
        now: Callable[[], float],
        cluster: Cluster | None = None,
    ) -> None:
        settings = sources.node.settings
        self.gateway = settings.gateway.name
        self.values_are_public = retained.values_are_public(settings.gateway)
        self._sources = sources
        self._stats = stats
        self._readiness = readiness
        self._members = members
        self._feeds = feeds
        self._history = history
        self._now = now
        self._cluster = cluster
        self._applications = Applications(applications.places(settings), now)
        self._ledger = LedgerQuestions(applications.ledger_places(settings), settings.ledger, now)
        self._scanning = asyncio.Lock()

    def warning(self) -> str:
        """Which shards have nobody to serve them, "" if all have."""
        return "" if self._cluster is None else self._cluster.warning(self._now())

    async def overview(self, _query: Mapping[str, str]) -> Page:
        stats, health = await self._stats.take(), await self._readiness.check()
        sources, kafka, now = self._sources, self._sources.kafka, self._now()
        (errors,) = kafka.errors.collect()
        members = [
            overview.Member(one, self._members.status(one, now), None if one.heard_at is None else now - one.heard_at)
            for one in self._members
        ]
        return overview.page(
            overview.OverviewFacts(
                gateway=self.gateway,
                parts=health.faults,
                stats=stats,
                history=self._history,
                spool=sources.home.spool_size,
                retained=len(sources.node.retained),
                in_flight=sources.in_flight(),
                waiting_bytes=kafka.waiting_bytes,
                brokers_up=kafka.brokers_up,
                kafka_errors={s.labels["code"]: s.value for s in errors.samples if s.name.endswith("_total")},
                members=members[:ROWS],
                held=None if self._cluster is None else _held(self._cluster, [one.member.name for one in members]),
            )
        )

    async def shards(self, query: Mapping[str, str]) -> Page:
        async with self._scanning:
            homes = list(self._sources.home.shards.values())
            here = [await self._shard(home) for home in homes]
        return shards.page(here) if self._cluster is None else self._all_shards(self._cluster, here, query)

    def _all_shards(self, cluster: Cluster, here: Sequence[ShardFacts], query: Mapping[str, str]) -> Page:
        now, first, stats = self._now(), _number(query.get("first", "")), {one.number: one.stats for one in here}
        kept_warm = cluster.kept_warm()
        shown = [
            all_shards.OneShard(
                lease,
                cluster.state(lease, now),
                cluster.standbys(lease, now),
                cluster.is_alone(lease, now),
                cluster.phase(lease.shard),
                kept_warm.get(lease.shard),
                stats.get(lease.shard),
                cluster.console(cluster.owner(lease.shard), shards.PATH),
            )
            for lease in all_shards.of_page(cluster.leases(), first)
        ]
        facts = all_shards.AllShardsFacts(
            shown,
            first,
            len(cluster),
            Counter(cluster.state(lease, now) for lease in cluster.leases()),
            cluster.owned()[self.gateway],
            cluster.followed()[self.gateway],
            [all_shards.ChangeSeen(change, now - change.at) for change in cluster.changes],
            here,
        )
        return all_shards.page(facts, self._clock())

    async def _shard(self, home: ShardHome) -> ShardFacts:
        stats, size = SessionStats(), home.spool.size
        async for sessions in slices([home.state]):
            stats.add(sessions)
        return ShardFacts(
            number=home.number,
            owner=self.gateway,
            stats=stats,
            applied_to=home.state.applied_to,
            end=self._sources.kafka.ends.get((self._sources.node.topics.egress, home.number)),
            is_catching_up=home.catch_up.is_reading,
            parked=home.state.order.parked.records,
            spool_rows=size.rows,
            spool_bytes=size.file_bytes,
            fault=home.spool.outage.reason,
        )

    async def clients(self, query: Mapping[str, str]) -> Page:
        wanted = Wanted(query.get("prefix", ""), query.get("after", ""), _state(query.get("state", "")), ROWS)
        async with self._scanning:
            found = await sessions_page(self._sources.home.states, wanted)
        return clients.page(found, query, self._clock(), self._elsewhere(query))

    def _elsewhere(self, query: Mapping[str, str]) -> list[Section]:
        if self._cluster is None:
            return []
        kept = {key: query.get(key, "") for key in ("prefix", "state")}
        return [elsewhere.note(self._cluster, clients.PATH, kept["prefix"], **kept)]

    async def client(self, client: str, actions: Sequence[Action], notice: str) -> Page:
        """Raises NotFound."""
        session = self._sources.home.session(client)
        if session is None and self._cluster is not None:
            raise NotFound(elsewhere.missing(self._cluster, clients.CLIENT_PATH, client))
        if session is None:
            raise NotFound(Section("Not found", "This gateway has no session of that client."))
        return clients.client(detail(session), actions, self._clock(), notice)

    async def queues(self, _query: Mapping[str, str]) -> Page:
        longest: list[Session] = []
        slow: list[Session] = []
        async with self._scanning:
            async for sessions in slices(self._sources.home.states):
                waiting = [session for session in sessions if session.queued and not session.is_group]
                longest = heapq.nlargest(QUEUES, [*longest, *waiting], key=_size)
                behind = [session for session in waiting if session.link is not None and not session.may_send]
                slow = heapq.nlargest(QUEUES, [*slow, *behind], key=_size)
        return clients.queues([summary(one) for one in longest], [summary(one) for one in slow], self._clock())

    async def topics(self, shows_values: bool, query: Mapping[str, str]) -> Page:
        all_of_them = self._sources.node.retained
        async with self._scanning:
            found = await all_of_them.listed(query.get("prefix", ""), query.get("after", ""), ROWS + 1)
        facts = retained.RetainedFacts(len(all_of_them), all_of_them.size_bytes, found[:ROWS], len(found) > ROWS)
        return retained.page(facts, query, self._clock(), shows_values)

    async def topic(self, shows_values: bool, query: Mapping[str, str]) -> Page:
        """Raises NotFound."""
        message = self._sources.node.retained.find(query.get("topic", ""))
        if message is None:
            raise NotFound(Section("Not found", "No message is retained on that topic."))
        return retained.topic(message, self._clock(), shows_values)

    async def messages(self, query: Mapping[str, str]) -> Page:
        """A message's journey, or the newest messages, as the ledger knows them."""
        message_id = query.get("id", "").strip()
        if message_id:
            return messages.journey(message_id, await self._ledger.journey(message_id))
        topic, client = query.get("topic", ""), query.get("client", "")
        return messages.newest(topic, client, await self._ledger.newest(topic, client), self._clock())

    async def feeds(self, _query: Mapping[str, str]) -> Page:
        """Each feed's answer counts all subscribers, so others have a turn between two."""
        found, names = [], self._feeds.feeds()
        async with self._scanning:
            for feed in names[: redundant_feeds.MOST]:
                found.append(feed_detail(self._feeds, feed, self._now()))
                await asyncio.sleep(0)
        return redundant_feeds.page(found, len(names))

    async def refusals(self, _query: Mapping[str, str]) -> Page:
        return refusals.page(self._sources.node.counts + self._sources.hosts.counts)

    async def applications(self, _query: Mapping[str, str]) -> Page:
        return applications.page(await self._applications.ask(), self._clock())

    def _clock(self) -> float:
        return self._sources.node.clock()


def _state(text: str) -> State | None:
    return "connected" if text == "connected" else "offline" if text == "offline" else None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _held(cluster: Cluster, members: Sequence[str]) -> dict[str, overview.Held]:
    owned, followed = cluster.owned(), cluster.followed()
    return {one: overview.Held(owned[one], followed[one], cluster.console(one, overview.PATH)) for one in members}


def _size(session: Session) -> tuple[int, int]:
    return session.queued_bytes, session.queued
