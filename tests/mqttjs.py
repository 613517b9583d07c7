"""MQTT.js, the client of browsers and of Node, against a server under test; skipped without Node."""

import json
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "acceptance" / "mqttjs"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None,
    reason="node and npm are not installed (Debian: apt-get install nodejs npm)",
)


@pytest.fixture(scope="session")
def mqttjs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with client.js and the pinned MQTT.js, from npm's registry as npm is configured."""
    directory = tmp_path_factory.mktemp("mqttjs")
    for name in ("package.json", "package-lock.json", "client.js"):
        shutil.copy(SOURCE / name, directory)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def check(directory: Path, url: str, version: str) -> None:
    """It gets what it sends at each QoS, large messages, a retained one, and what it missed; at any `url`."""
    run = uuid.uuid4().hex[:8]
    command = ["node", "client.js", url, version, run]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    user = "value" if version == "5" else None
    assert said["granted"] == 2
    assert said["isPresent"] is True
    first, *live, last = [tuple(message.values()) for message in said["received"]]
    assert first == (f"js/{run}/retained", 1, True, "kept", None)
    assert sorted(live) == [  # MQTT.js shows a message of QoS 2 at its PUBREL, so perhaps behind the next one
        (f"js/{run}/0", 0, False, "at 0", user),
        (f"js/{run}/1", 1, False, "at 1", user),
        (f"js/{run}/2", 2, False, "at 2", user),
        (f"js/{run}/large", 1, False, "300000 bytes", None),
    ]
    assert last == (f"js/{run}/missed", 2, False, "missed", None)
