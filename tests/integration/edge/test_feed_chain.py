"""Adapters as processes and a subscriber of what they write: failover and failback of the whole feed (S2, S3, S6)."""

import asyncio
import signal
from pathlib import Path

from tests import draw
from tests.conftest import LocalBroker
from tests.integration.edge.feed_adapter_process import ended, make_topics
from tests.integration.edge.feed_chain import Chain, Pair

pytestmark = draw.over_processes


def test_adapters_are_killed_frozen_and_come_back_with_numbers_of_a_new_epoch(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """S3, S6: under load. Then both die, and the source numbers anew: its numbers are no copies of those before. The
    subscriber is restarted in between."""
    make_topics(broker.bootstrap, unique_prefix)
    old, new = (Pair(tmp_path / f"epoch {epoch}", broker.bootstrap, unique_prefix, epoch) for epoch in (0, 1))
    chain = Chain(broker.bootstrap, unique_prefix, tmp_path / "state")
    active, backup = old.adapters["active"], old.adapters["backup"]

    def failover() -> tuple[str, int]:
        old.start()
        old.send(300)
        chain.until_has(old)
        chain.until_switched("active", "dead", active.kill)
        old.send(300)
        chain.until_switched("active", "alive", active.start)
        chain.until_switched("backup", "dead", lambda: backup.signal(signal.SIGSTOP))
        old.send(300)
        chain.until_switched("backup", "alive", lambda: backup.signal(signal.SIGCONT))
        old.send(100)
        return old.stream, chain.until_has(old)

    def new_origin() -> tuple[str, int]:
        active.kill()
        backup.kill()
        new.start()
        new.send(300)
        return new.stream, chain.until_has(new)

    with ended(*old.adapters.values(), *new.adapters.values()):
        asyncio.run(chain.run(failover))
        asyncio.run(chain.run(new_origin))
    chain.check(old)
    chain.check(new)
