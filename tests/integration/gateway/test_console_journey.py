"""The console asks a ledger with real tables for a message's journey, and shows the token that the ledger requires."""

from pathlib import Path
from urllib.parse import quote

from tests.unit.gateway.console.test_console_http import HOSTILE, ask
from tests.unit.gateway.observe.observed import observed, run_real
from tests.unit.jobs.ledger.test_journey_requests import AT, TOKEN, delivery, id_of, message, serving
from tests.unit.jobs.ledger_tables import append


def test_a_journey_of_the_ledger_is_shown(tmp_path: Path) -> None:
    tables, token, wrong = tmp_path / "tables", tmp_path / "token", tmp_path / "wrong"
    token.write_text(TOKEN)
    wrong.write_text("another-token-of-the-operator")
    message_id = id_of(AT, 1)
    append(str(tables), "messages", [message(message_id, source=HOSTILE, destination=HOSTILE)])
    append(str(tables), "outcomes", [delivery(message_id, "bob")])

    async def page(address: str, file: Path, query: str) -> str:
        ledger = {"metrics_port": int(address.rpartition(":")[2]), "token_file": str(file)}
        async with observed(tmp_path / "home", ledger=ledger) as here:
            return (await ask(here, f"/console/messages?{query}")).text

    async def scenario(address: str) -> None:
        for query in (f"topic={quote(HOSTILE)}", f"client={quote(HOSTILE)}"):
            assert f'href="/console/messages?id={message_id}"' in await page(address, token, query)
        shown = await page(address, token, f"id={message_id}")
        for words in ("accepted", "appended", "delivered", "<bdi>bob</bdi>", "2026-01-02 03:04:05.678"):
            assert words in shown
        assert "<img" not in shown
        assert "the ledger has no message" in (await page(address, token, f"id={id_of(AT, 2)}")).lower()
        assert "does not accept this gateway" in await page(address, wrong, f"id={message_id}")

    with serving(tables, str(token)) as address:
        run_real(scenario(address))
