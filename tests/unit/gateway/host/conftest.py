"""A gateway for each module, on real sockets, and two clients of it that have not said anything yet."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.host.raw_client import RawClient
from tests.unit.gateway.host.socket_gateway import PACKET_BYTES, SocketGateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    limits = {"packet_bytes": PACKET_BYTES, "receive_maximum": 3, "session_expiry_s": 1000}
    directory = tmp_path_factory.mktemp("rules")
    with SocketGateway(directory, limits=limits, response_prefix="responses/") as gateway:
        yield gateway


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A word of the test's own, for client identifiers and topics."""
    return str(request.node.name)


@pytest.fixture
def one(gateway: SocketGateway) -> Iterator[RawClient]:
    with RawClient(gateway.mqtt_port) as client:
        yield client


@pytest.fixture
def two(gateway: SocketGateway) -> Iterator[RawClient]:
    with RawClient(gateway.mqtt_port) as client:
        yield client
