"""Gateways of a cluster as far as commands ask them: the admin API over HTTP, over leases in memory."""

import json
import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

from jobs.stack.gateways import listener_name, part_names
from jobs.stack.state import ProcessState, StackState, write_state

HOST = "127.0.0.1"
_DISPATCHER = ProcessState(
    name="dispatcher", pid=1, create_time=1.0, started_at=1.0, restarts=0, level=1, state="ready"
)
CONFIGURATION = Path(__file__).parents[4] / "conf" / "base.toml"


class FakeCluster:
    """The leases that all gateways of the cluster see. `owners` by shard; a shard moves when the admin API is asked
    for it, if `moves`. `released_by`: who has given up a shard that nobody has claimed yet. Gateways in `starting`
    answer as such. `refusal`: what commands are refused with. `sessions`: the gateway of each client. `lag`: of every
    standby. `asked`: (gateway, method, path, token)."""

    def __init__(self, names: Iterable[str], shards: int = 4) -> None:
        self.names = list(names)
        self.owners: list[str | None] = [self.names[n % len(self.names)] for n in range(shards)]
        self.epochs = [1] * shards
        self.released_by: dict[int, str] = {}
        self.boots = dict.fromkeys(self.names, 1)
        self.states = dict.fromkeys(self.names, "up")
        self.lag: dict[str, Any] | None = {"is_warm": True, "behind_records": 3, "behind_s": 0.25}
        self.is_cluster = True
        self.moves = True
        self.refusal = ""
        self.starting: set[str] = set()
        self.sessions: dict[str, str] = {}
        self.asked: list[tuple[str, str, str, str]] = []

    def gateways(self, me: str) -> dict[str, Any]:
        def one(name: str) -> dict[str, Any]:
            return {
                "name": name,
                "state": self.states[name],
                "boot": self.boots[name],
                "zone": "rack-1",
                "addresses": {"mqtt": f"{name}.example:1883"},
                "load": {"connections": 12, "cpu": 0.25, "memory_bytes": 180_000_000, "memory": 0.02},
                "shards": [n for n, owner in enumerate(self.owners) if owner == name],
                "standby_of": [n for n, owner in enumerate(self.owners) if owner != name],
            }

        return {"gateway": me, "gateways": [one(name) for name in self.names]}

    def shards(self, me: str) -> dict[str, Any]:
        def one(number: int, owner: str | None) -> dict[str, Any]:
            return {
                "shard": number,
                "epoch": self.epochs[number],
                "state": "owned" if owner else "released" if number in self.released_by else "none",
                "owner": owner,
                "is_fenced": owner is not None,
                "released_by": self.released_by.get(number),
                "successor": None,
                "standbys": [name for name in self.names if name != owner],
                "phase": "serving" if owner == me else "idle",
                "lag": None if owner == me else self.lag,
            }

        return {"gateway": me, "shards": [one(number, owner) for number, owner in enumerate(self.owners)]}

    def move(self, shard: int, to: str) -> None:
        if self.moves:
            self.owners[shard] = to
            self.epochs[shard] += 1

    def drain(self, name: str) -> None:
        self.states[name] = "draining"
        others = [other for other in self.names if self.states[other] == "up"]
        for shard, owner in enumerate(self.owners):
            if owner == name:
                self.move(shard, others[shard % len(others)])

    def restart(self, name: str) -> None:
        """Another process of that name is up, and has got a shard."""
        self.boots[name] += 1
        self.states[name] = "up"
        self.move(0, name)


class FakeGateways:
    """`with FakeGateways(cluster) as gateways:` serves the admin API of each of its gateways; `urls` by name. Set
    `has_dispatcher` before `run_as_stack`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.urls: dict[str, str] = {}
        self._servers: dict[str, ThreadingHTTPServer] = {}
        self.has_dispatcher = False
        self._stack = ExitStack()

    def __enter__(self) -> "FakeGateways":
        for name in self.cluster.names:
            server = ThreadingHTTPServer((HOST, 0), _handler(self.cluster, name))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            self._servers[name] = server
            self.urls[name] = f"http://{HOST}:{server.server_port}"
            self._stack.callback(thread.join)
            self._stack.callback(server.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for server in self._servers.values():
            server.server_close()

    def lose(self, name: str) -> None:
        """From now on connections to it are refused."""
        self._servers[name].shutdown()
        self._servers[name].server_close()

    def run_as_stack(self, data: Path, *, is_ready: bool = True) -> None:
        """Makes the data directory one of a running stack with these gateways. Its `up` is this process."""
        parts = dict(zip(part_names(len(self.urls)), self.urls, strict=True))
        state = StackState(
            supervisor_pid=os.getpid(),
            supervisor_create_time=psutil.Process().create_time(),
            ready=is_ready,
            bootstrap="",
            listeners={
                listener_name(part, "metrics"): self.urls[name].removeprefix("http://") for part, name in parts.items()
            },
            configuration=[str(CONFIGURATION)],
            processes=[_DISPATCHER] if self.has_dispatcher else [],
            gateways=parts,
        )
        write_state(data, state)


def _handler(cluster: FakeCluster, name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._handle("GET")

        def do_POST(self) -> None:
            self._handle("POST")

        def do_DELETE(self) -> None:
            self._handle("DELETE")

        def _handle(self, method: str) -> None:
            parts = urlsplit(self.path)
            cluster.asked.append((name, method, parts.path, self.headers.get("Authorization", "")))
            status, content = self._answer(method, parts.path, parse_qs(parts.query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def _answer(self, method: str, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
            if name in cluster.starting:
                return 503, {"error": "the gateway is starting or being stopped; see /readyz"}
            if not cluster.is_cluster:
                return 404, {"error": "this gateway is not in a cluster: gateway.cluster.enabled is false"}
            if path == "/admin/sessions":
                found = sorted(client for client, at in cluster.sessions.items() if at == name)
                return 200, {"sessions": [{"client": one} for one in found], "total": len(found), "next": None}
            if method == "DELETE":
                (client,) = query["client"]
                if cluster.sessions.get(client) != name:
                    return 404, {"error": "this gateway has no session"}
                return 200, {"client": client, "connection_ended": True, "session_ended": False}
            if method == "GET":
                return 200, cluster.gateways(name) if path == "/admin/gateways" else cluster.shards(name)
            if cluster.refusal:
                return 409, {"error": cluster.refusal}
            if path == "/admin/drain":
                cluster.drain(name)
                return 202, {}
            shard = int(path.split("/")[3])
            assert cluster.owners[shard] == name, "only the owner may be asked"
            cluster.move(shard, query["to"][0])
            return 202, {}

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    return Handler
