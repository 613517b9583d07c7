"""`waystation agent send --wait`: a program learns what became of its message (M1, M8)."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.agent.agent import Agent
from edge.agent.settings import AgentSettings
from edge.cli import main as edge_main
from schemas.mesh_api import BundleResult
from tests.unit.edge.agent.test_agent import QUICKLY, complete
from tests.unit.edge.agent.test_mesh_uplink import Network, with_uplink
from tests.unit.edge.uplink.fake_platform import FakePlatform


def written(directory: Path, found: AgentSettings) -> Path:
    """A settings file by which the command finds the agent."""
    path = directory / "agent.toml"
    tables = f'[store]\ndirectory = "{found.store.directory}"\n[mesh]\nenabled = true\n'
    path.write_text(f'client_id = "{found.client_id}"\n{tables}')
    return path


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> Callable[[], int]:
    def run() -> int:
        monkeypatch.setattr(sys, "argv", ["waystation", "agent", *words])
        with pytest.raises(SystemExit) as ended:
            edge_main.main()
        return int(ended.value.code or 0)

    return run


def test_what_became_of_a_message_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """M1, M8: it is acknowledged, refused, or still on its way when the time is over."""

    async def run() -> None:
        platform, network = FakePlatform(), Network(is_up=True)
        async with network.to(platform, "a") as url:
            found = with_uplink(tmp_path / "a", "a", [url])
            conf = written(tmp_path, found)

            async def send(text: str, wait: str) -> tuple[int, list[str], str]:
                words = ("send", "topic", text, "--wait", wait, "--conf", str(conf))
                loop = asyncio.get_running_loop()
                status = await loop.run_in_executor(None, command(monkeypatch, *words))
                printed = capsys.readouterr()
                return status, printed.out.splitlines(), printed.err

            async with Agent(found, backoff=QUICKLY):
                status, lines, error = await send("one", "20")
                assert (status, lines[1:], error) == (0, ["acknowledged says gateway as gateway"], "")
                monkeypatch.setattr(platform, "take", lambda agent, raw: BundleResult("refused", "not allowed"))
                status, lines, error = await send("two", "20")
                assert status == 1
                assert "is refused: not allowed" in error
                network.is_up = False
                status, lines, error = await send("three", "0.1")
                assert status == 1
                assert f"`waystation agent trace {lines[0]}` says how far" in error

    complete(run())
