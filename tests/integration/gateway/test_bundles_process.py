"""Bundles at a gateway process on a real broker, without any router: one that is brought again after kill -9 reaches an
MQTT subscriber once, and has its receipt both times; its originator's certificate is known then (M5, M7, M12, M14,
Q1)."""

import base64
import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bundles.bundle import encode
from bundles.certificates import Authority
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Role, decode, verify
from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_http import ids_on_ingress
from tests.integration.gateway.test_gateway_process import PATIENCE_S, Client
from tests.unit.bundles.files import PLATFORM, mesh_environment, mesh_files
from tests.unit.bundles.keys import certificate
from tests.unit.gateway.mesh.mesh_gateway import b64, made

FIRST, LAST = made(1, b"first", "fresh/1"), made(2, b"last", "fresh/1")


def bring(gateway: Gateway, *bundles: bytes, certificates: Sequence[bytes] = ()) -> list[dict[str, str]]:
    """The results."""
    body = {"bundles": [b64(one) for one in bundles], "certificates": [b64(one) for one in certificates]}
    headers = {"X-Client-Id": "proxy", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{gateway.http_port}/v1/bundles"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        results: list[dict[str, str]] = json.load(answer)["results"]
    return results


def test_a_bundle_that_two_gateways_take_is_delivered_once(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """M14: the one before kill -9, and the one after, which does not know of it; both copies are on `ingress`. M5: it
    knows the originator's certificate, which was brought to the first alone."""
    topics = broker.topics(unique_prefix)
    files = mesh_files(tmp_path / "mesh", time.time())
    known = KnownCertificates(Authority.from_pem(Path(files["authority_file"]).read_bytes()), time.time)
    known.add(certificate(PLATFORM, roles=[Role.GATEWAY], now_s=time.time()).der)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **mesh_environment(files))
    gateway.start()
    try:
        receiver = Client("receiver").connect(gateway.port)
        receiver.subscribe("fresh/#")
        (before,) = bring(gateway, encode(FIRST), certificates=[certificate("agent", now_s=time.time()).der])
        assert before["outcome"] == "taken", before
        assert wait_until(lambda: receiver.got == [b"first"], PATIENCE_S)
        gateway.kill()
        receiver.leave()
        gateway.start()
        receiver.connect(gateway.port)
        after, last = bring(gateway, encode(FIRST), encode(LAST))
        assert (after["outcome"], last["outcome"]) == ("taken", "taken")
        for result in (before, after):
            receipt = decode(base64.b64decode(result["receipt"]))
            verify(receipt, known.signer_keys)
            assert receipt.message_id == FIRST.message_id
        assert wait_until(lambda: b"last" in receiver.got, PATIENCE_S)
        assert receiver.got == [b"first", b"last"]
        assert sorted(ids_on_ingress(broker, topics.ingress)) == sorted([FIRST.message_id] * 2 + [LAST.message_id])
        receiver.leave()
    finally:
        gateway.stop()
