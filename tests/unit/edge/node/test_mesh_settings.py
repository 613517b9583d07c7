"""The table `[mesh]` and its limits (M5, M7, M19)."""

import tomllib

import msgspec
import pytest

from bundles.bundle import HOPS_MAX
from edge.mesh.contact_frames import UNLIMITED
from edge.node import settings as node_settings
from edge.node.settings import FRAGMENT, MeshSettings, broken_rules, limits, parse_peer
from tests.documents import ROOT


def test_the_documented_fragment_has_every_key_with_its_default() -> None:
    """M19."""
    table = tomllib.loads(FRAGMENT)["mesh"]
    assert msgspec.convert(table, MeshSettings) == MeshSettings()
    assert list(table) == list(MeshSettings.__struct_fields__)
    assert all("#" in line for line in FRAGMENT.splitlines() if not line.startswith("enabled"))
    assert FRAGMENT in (ROOT / "docs" / "edge.md").read_text(encoding="utf-8")


def test_limits_of_the_formats_are_those_of_the_formats() -> None:
    """The settings import neither module: agents without a mesh spare the memory."""
    assert (node_settings.HOPS_MAX, node_settings.UNLIMITED) == (HOPS_MAX, UNLIMITED)


def test_the_cores_get_the_limits() -> None:
    """M7."""
    found = limits(MeshSettings(copies=0, hops=3, stored_bundles=200_000, idle_s=5.0, bundle_bytes=5_000))
    assert (found.copies, found.hops, found.stored_bundles, found.idle_s) == (0, 3, 200_000, 5.0)
    assert found.summary_ids >= found.stored_bundles


def test_what_counts_as_unreachable_is_set_for_peers_too() -> None:
    """M3, M19."""
    found = limits(MeshSettings(latency_ms=250.0, probe_s=5.0, good_to_come_up=3, bad_to_go_down=4))
    assert (found.latency_s, found.probe_s, found.good_to_come_up, found.bad_to_go_down) == (0.25, 5.0, 3, 4)
    assert limits(MeshSettings()).latency_s == 0
    assert "below mesh.idle_s" in "".join(broken_rules(MeshSettings(latency_ms=30_000.0)))


@pytest.mark.parametrize(
    ("text", "address"), [("host:1", ("host", 1)), ("127.0.0.1:65535", ("127.0.0.1", 65_535)), ("[::1]:9", ("::1", 9))]
)
def test_a_peer_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_peer(text) == address
    assert not list(broken_rules(MeshSettings(peers=[text])))


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:0", "host:65536", "host:x", "::1:9", "[]:9"])
def test_what_is_no_peer_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_peer(text)
    assert text in "".join(broken_rules(MeshSettings(peers=[text])))


def test_wrong_values_are_refused() -> None:
    for wrong in ({"hops": 0}, {"copies": 70_000}, {"port": 70_000}, {"peer": []}, {"bundle_bytes": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, MeshSettings)
