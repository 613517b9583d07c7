"""The stack that acceptance tests share: two router processes, so that each can be killed alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stack import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a stack of its own comes before what shares one: on two cores one at a time is enough."""
    items.sort(key=lambda item: "stack" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[Stack]:
    overrides = {
        "JAVA_HOME": str(java_home),
        "WAYSTATION_STACK__ROUTER_PROCESSES": "2",
        # Short pauses are nothing that these tests look at, and two cores have enough to do.
        "WAYSTATION_ROUTER__STANDBY_QUERY": "false",
        # Other tests keep a processor busy: what gives way to them would take minutes.
        "WAYSTATION_STACK__LEDGER_NICENESS": "0",
        "WAYSTATION_STACK__ROUTER_START_NICENESS": "0",
        "WAYSTATION_STACK__ROUTER_REPLACE_NICENESS": "0",
        "WAYSTATION_STACK__START_TIMEOUT_S": "200",
        # Sooner than by default: tests wait for rows.
        "WAYSTATION_LEDGER__TRIGGER_S": "5.0",
        # A part may die a hundred times, and is to start again at once: the pause doubles thirty times at most.
        "WAYSTATION_STACK__RESTART_BACKOFF_S": "1e-10",
    }
    stack = Stack(tmp_path_factory.mktemp("stack"), overrides)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
