"""Two gateway processes of one site that do not fit together (G4, G14)."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.processes import STOP_S, Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker

Environment = dict[str, str]


def settings(name: str, cluster: str) -> Environment:
    return {"WAYSTATION_GATEWAY__NAME": name, "WAYSTATION_GATEWAY__CLUSTER__ENABLED": cluster}


@contextmanager
def two(
    broker: LocalBroker, prefix: str, directory: Path, one: Environment, other: Environment
) -> Iterator[tuple[Gateway, Gateway]]:
    """The first one is ready."""
    broker.topics(prefix)
    for of in ("first", "second"):
        (directory / of).mkdir()
    first = Gateway(directory / "first", broker.bootstrap, prefix, **one)
    second = Gateway(directory / "second", broker.bootstrap, prefix, **other)
    try:
        first.start()
        yield first, second
    finally:
        for gateway in (first, second):
            if hasattr(gateway, "process"):
                gateway.kill()


def refusal(gateway: Gateway) -> str:
    """What a gateway says that does not go on."""
    assert wait_until(gateway.ended, STOP_S), gateway.log()
    assert gateway.process.exit_code == 1
    return gateway.log()


@pytest.mark.timeout(180)
def test_of_one_name_the_one_that_serves_goes_on_unless_it_stood_still(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """Each says why it ends, also that which was replaced while it stood still."""
    same = settings("gw", "true")
    with two(broker, unique_prefix, tmp_path, same, same) as (first, second):
        second.launch()
        assert "a gateway with the name gw is running already" in refusal(second)
        assert not first.ended()
        os.killpg(first.pid, signal.SIGSTOP)
        second.start()
        os.killpg(first.pid, signal.SIGCONT)
        assert "another process has started as the gateway gw" in refusal(first)
        assert not second.ended()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("one", "other"), [("false", "false"), ("false", "true"), ("true", "false")])
def test_nobody_joins_one_that_has_all_shards_and_that_one_joins_nobody(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path, one: str, other: str
) -> None:
    """They would deliver everything twice, and overwrite the sessions of one another."""
    with two(broker, unique_prefix, tmp_path, settings("gw-1", one), settings("gw-2", other)) as (first, second):
        second.launch()
        assert "the gateway gw-1 is running already" in refusal(second)
        assert "gateway ready" not in second.log()
        assert not first.ended()
