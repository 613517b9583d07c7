"""A gateway for each module, on real sockets."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.host.socket_gateway import SocketGateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    with SocketGateway(tmp_path_factory.mktemp("edge")) as gateway:
        yield gateway
