"""The agent that is measured, the loads on it and on the access point, and the picture of the edge's figures."""

import asyncio
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench.edge_agent import CLIENT_ID, DOMAIN, SETTINGS, TOPIC, AgentProcess
from bench.edge_load import answer_all, asked_ms, submitted_per_s, syncs_per_s
from bench.plot import draw_aims
from edge.agent.agent_store import AgentStore
from edge.agent.envelope import File, read
from edge.agent.routes import Routes
from edge.agent.settings import load
from edge.client.limits import Limits
from edge.client.outbox import Outbox

PAYLOAD_BYTES = 300


def test_the_agent_has_settings_that_are_allowed(tmp_path: Path) -> None:
    AgentProcess(tmp_path, 1883, 2525)
    settings = load(tmp_path / "agent.toml")
    assert settings.client_id == CLIENT_ID
    assert Routes(settings.smtp.routes, ()).of(f"office@{DOMAIN}") is not None
    assert "{" not in SETTINGS.format(gateway_port=1, smtp_port=2, directory="s")


def test_the_backlog_is_what_an_agent_would_have_stored(tmp_path: Path) -> None:
    """Files that wait, which a receiver could read, each as large in the store's eyes as if it had been published."""
    AgentProcess(tmp_path, 1883, 2525).fill(3, PAYLOAD_BYTES)
    store = AgentStore(tmp_path / "s" / "outbox", CLIENT_ID, 10)
    found = store.recover()
    rows = store.waiting(0, 10, 1 << 20)
    store.close()
    assert (found.messages, found.waiting, found.session.last_sequence) == (3, 3, 3)
    assert found.size == sum(row.size for row in rows)
    for row in rows:
        assert row.properties is not None
        file = read(row.properties["user_property"], row.payload)
        assert isinstance(file, File)
        assert len(file.content) == PAYLOAD_BYTES
    assert len({row.properties["user_property"][1] for row in rows if row.properties}) == 3
    assert asyncio.run(published_size(tmp_path, rows[0].payload, rows[0].properties)) == rows[0].size


async def published_size(directory: Path, payload: bytes, properties: dict[str, object] | None) -> int:
    """How large the client's outbox would count the message."""
    now = lambda: 0.0  # noqa: E731
    outbox = Outbox(
        lambda: AgentStore(directory / "other", CLIENT_ID, 10), Limits(), now, now, lambda _: None, lambda _: None
    )
    await outbox.open()
    try:
        return outbox.add(TOPIC, payload, 1, False, properties, None).size
    finally:
        await outbox.close()


def test_a_mail_that_is_not_accepted_fails_the_measurement() -> None:
    """Refused mails would look like a fast agent."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        for answer in (b"250", b"250", b"250", b"354"):
            await reader.readline()
            writer.write(answer + b" go on\r\n")
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(b"452 4.3.1 the outbox is full\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async def submit() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with server:
            await submitted_per_s(server.sockets[0].getsockname()[1], 1, 30)

    with pytest.raises(RuntimeError, match="452"):
        asyncio.run(submit())


def test_the_access_point_is_asked_as_often_as_due() -> None:
    async def asked() -> list[float]:
        async with await asyncio.start_server(answer_all, "127.0.0.1", 0) as server:
            return await asked_ms(server.sockets[0].getsockname()[1], rate=500, seconds=0.02)

    assert len(asyncio.run(asked())) == 10


def test_the_disk_is_measured_where_the_agent_would_write(tmp_path: Path) -> None:
    """And nothing is left there."""
    assert syncs_per_s(tmp_path, 0.01) > 0
    assert not list(tmp_path.iterdir())


def test_the_picture_says_how_many_times_as_good_as_its_aim_a_figure_is() -> None:
    """Whether more is better or less; an idle agent may have used no processor time that could be measured."""
    axes = Figure().subplots()
    draw_aims(axes, {"agent_drain_per_s": 3_000, "agent_start_small_s": 1.5, "agent_rss_mb": 160, "agent_idle_core": 0})
    shown = dict(zip((label.get_text() for label in axes.get_yticklabels()), axes.patches, strict=True))
    widths = {label.partition("\n")[0]: bar.get_width() for label, bar in shown.items()}
    assert widths == {"agent_drain_per_s": 3.0, "agent_start_small_s": 2.0, "agent_rss_mb": 0.5}
