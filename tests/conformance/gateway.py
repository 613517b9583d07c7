"""A gateway to run suites against: `python -m tests.conformance.gateway --port 1883`, until Ctrl-C.

It is the gateway on real sockets, with Kafka, routers and spool as their twins in memory, so that it starts at once.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.unit.gateway.host.socket_gateway import SocketGateway
from tests.unit.gateway.policy.policies import policy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--websocket-port", type=int, default=0)
    parser.add_argument("--keep-alive", type=int, default=0, help="gateway.limits.keep_alive_s")
    asked = parser.parse_args()
    limits = {"keep_alive_s": asked.keep_alive}
    refusing = policy(blocked_subscribe=["test/nosubscribe"])  # what the suite expects to be refused
    with (
        tempfile.TemporaryDirectory() as directory,
        SocketGateway(
            Path(directory),
            limits=limits,
            policy=refusing,
            mqtt_port=asked.port,
            websocket_port=asked.websocket_port,
        ) as gateway,
    ):
        sys.stdout.write(f"MQTT on port {gateway.mqtt_port}, WebSocket on port {gateway.websocket_port}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
