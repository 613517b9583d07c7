"""`waystation submit` to Kubernetes up to its API server: what the real spark-submit asks it for."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from schemas.settings import load_settings

BASE = Path(__file__).parents[3] / "conf" / "base.toml"
SUBMIT_S = 180.0
OVERLAY = """
    [kafka]
    bootstrap = "broker:9093"
    password_file = "/etc/waystation/kafka-user/password"
    [kafka.client]
    "security.protocol" = "SASL_SSL"
    "sasl.username" = "waystation-spark"
    [storage]
    tables = "s3a://bucket/tables"
    endpoint = "https://store:9000"
    access_key = "name-of-the-key"
    secret_file = "/etc/waystation/store/secret"
    [cluster]
    master = "k8s://{api}"
    deploy_mode = "cluster"
    image = "waystation-spark:1"
    namespace = "ours"
    service_account = "spark"
    [cluster.spark]
    "spark.kubernetes.driver.secrets.waystation-spark" = "/etc/waystation/kafka-user"
"""


class Refusing(BaseHTTPRequestHandler):
    """An API server that keeps what it is asked for, and allows nothing."""

    asked: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, json.loads(body)))
        refusal = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not you", "code": 403}
        answer = json.dumps(refusal).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ThreadingHTTPServer]:
    Refusing.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pod_is_asked_for_that_has_all_it_needs(api: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Nothing is uploaded first, to a store that this machine may not reach; the driver reads what was read here; a
    secret is a file in it, and nowhere in what is asked for. A refusal is a failure, and is told."""
    overlay = tmp_path / "mine.toml"
    overlay.write_text(OVERLAY.format(api=f"http://127.0.0.1:{api.server_port}"))
    command = [sys.executable, "-m", "jobs.cli.main", "submit", "ledger", "--conf", str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SUBMIT_S)
    assert done.returncode == 1, done.stderr
    assert "not you" in done.stderr
    assert "ledger: ended with status 1" in done.stderr

    [(path, pod)] = Refusing.asked
    assert path == "/api/v1/namespaces/ours/pods"
    [container] = pod["spec"]["containers"]
    assert container["image"] == "waystation-spark:1"
    assert container["args"][-2:] == ["local:///opt/waystation/launch.py", "jobs.ledger"]
    told = {each["name"]: each["value"] for each in container["env"] if each["name"].startswith("WAYSTATION_")}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert "emptyDir" in volumes[mounts[told["WAYSTATION_DATA"]]]
    assert volumes[mounts["/etc/waystation/kafka-user"]]["secret"]["secretName"] == "waystation-spark"
    labels = pod["metadata"]["labels"]
    assert (labels["spark-app-name"], labels["spark-role"]) == ("waystation-ledger", "driver"), "how it is ended"

    there, here = load_settings([BASE], told), load_settings([BASE, overlay], os.environ)
    assert msgspec.structs.replace(there, cluster=here.cluster) == here
