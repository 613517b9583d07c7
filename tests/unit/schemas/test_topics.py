"""How the topics are declared."""

from pathlib import Path

from jobs.stack.broker import BrokerSpec, server_properties
from schemas.settings import load_settings
from schemas.topics import Topics

ROOT = Path(__file__).parents[3]
HEADERS_OF_ROUTERS = 200
"""Bytes of `instr` and `router`, at most."""


def test_the_instruction_of_the_largest_message_fits_on_egress() -> None:
    """Else no router would ever get past it."""
    limits = load_settings([ROOT / "conf" / "base.toml"], {}).gateway.limits
    spec = BrokerSpec(Path("data"), "localhost", 1, 2, "1g", limits.packet_bytes)
    of_broker = int(server_properties(spec)["message.max.bytes"])
    configs = {topic.name: topic.config for topic in Topics("").declared(4, 4, 1)}
    ingress, egress = (int(configs[name].get("max.message.bytes", of_broker)) for name in ("ingress", "egress"))
    assert egress >= ingress + HEADERS_OF_ROUTERS
