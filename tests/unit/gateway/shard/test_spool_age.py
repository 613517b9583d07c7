"""Whether a spool's file is trusted: Kafka may have removed tombstones that it has not seen (R4, Q7)."""

import asyncio

from schemas.topics import DAY_MS
from tests.unit.gateway.shard.test_spool_catch_up import Commit, observed
from tests.unit.gateway.shard.test_standby import ONE, SOON_S, TOPICS, Site, in_site, keep_last_of_each_key


def test_the_age_of_a_file_does_not_depend_on_how_it_was_read() -> None:
    """In one chunk or in two, the second without a marker: the owner has died in a commit."""

    async def scenario(site: Site) -> None:
        site.standbys.follow(0)
        site.commits(0, ONE)
        await asyncio.sleep(SOON_S)
        site.commits(0, ONE, 1)
        await asyncio.sleep(SOON_S)
        assert observed(await site.taken_over(0)) == observed(await site.from_zero(0))

    in_site(scenario)


def test_the_beginning_of_a_commit_is_not_trusted_for_ever() -> None:
    """R4: what it has was ended and forgotten while it was away; a later marker must not bring it back."""

    async def scenario(site: Site) -> None:
        *begins, marker = site.writers[0].commit(ONE)
        for key, value in begins:
            site.append(TOPICS.spool, 0, key, value)
        site.standbys.follow(0)
        await asyncio.sleep(SOON_S)
        await site.standbys.release(0)
        assert site.files[0].spool.state().offset == len(begins)
        site.append(TOPICS.spool, 0, *marker)
        site.commits(0, Commit(deleted=[0, 1, 2]))
        keep_last_of_each_key(site, 0)
        for record in site.broker.partitions[TOPICS.spool, 0]:
            record.is_removed = record.is_removed or record.value() is None  # as Kafka does it a day later
        await asyncio.sleep(2 * DAY_MS / 1000)
        fresh = observed(await site.from_zero(0))
        assert fresh["rows"] == {"s": [], "t": [], "u": []}
        assert observed(await site.taken_over(0)) == fresh

    in_site(scenario)
