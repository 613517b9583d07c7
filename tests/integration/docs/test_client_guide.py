"""Every example of docs/client.md runs as it stands there, against a gateway; its tables are complete (G13)."""

import asyncio
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from edge.client.limits import Limits
from edge.client.options import Options
from tests.documents import ROOT, code_blocks
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from tests.unit.gateway.http.http_harness import HttpHarness, run

GUIDE = (ROOT / "docs" / "client.md").read_text()
EXAMPLES = code_blocks(GUIDE, "python")


@pytest.mark.parametrize("example", EXAMPLES, ids=["publish", "sync", "request", "http", "kafka"])
def test_an_example_runs(tmp_path: Path, example: str) -> None:
    if "127.0.0.1:8080" in example:
        run(_over_http(example, tmp_path))
        return
    with SocketGateway(tmp_path / "gateway") as gateway:
        program = example.replace("127.0.0.1:1883", f"{HOST}:{gateway.mqtt_port}")
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (0, "")


async def _over_http(example: str, directory: Path) -> None:
    harness = await HttpHarness(directory / "gateway").start()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", example.replace("127.0.0.1:8080", f"{HOST}:{harness.port}")),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert (process.returncode, errors, said) == (0, b"", b"@http:van-7\n")
    assert await harness.stored() == [("vans/7/position", b"52.1 13.4")]


def test_every_option_and_limit_is_explained_with_its_default() -> None:
    for limit in fields(Limits):
        assert f"`{limit.name}`" in GUIDE
        assert f"{limit.default:,.0f}" in GUIDE, limit.name
    for option in fields(Options):
        assert f"`{option.name}`" in GUIDE or option.name == "backoff"
