"""Every example of docs/feeds.md runs as it stands there, on a broker; its tables of options are complete (S3)."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.options import SubscriberOptions
from feeds.message import Feed
from tests.conftest import LocalBroker
from tests.documents import ROOT, code_blocks
from tests.integration.edge.feed_writer import Slots, create_feed

GUIDE = (ROOT / "docs" / "feeds.md").read_text()
EXAMPLES = code_blocks(GUIDE, "python")


@pytest.mark.parametrize("example", EXAMPLES, ids=["subscriber", "sync"])
def test_an_example_runs(tmp_path: Path, broker: LocalBroker, unique_prefix: str, example: str) -> None:
    create_feed(broker.bootstrap, unique_prefix, name="flight")
    writer = Slots(broker.bootstrap, unique_prefix, name="flight")
    for feed in Feed:
        writer.write(feed, [0, 2])
        writer.write(feed, [3], payload=b"bye")
    writer.flush()
    program = example.replace("127.0.0.1:9092", broker.bootstrap).replace(
        'name="desk', f'prefix="{unique_prefix}", name="desk'
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    if "print" in example:
        assert ended.stdout.splitlines() == [
            "radar@0 0 b'0'",
            "radar@0: 1 to 1 are lost (passed)",
            "radar@0 2 b'2'",
            "radar@0 3 b'bye'",
        ]


def test_every_option_and_limit_is_explained_with_its_default() -> None:
    for limit in fields(FeedLimits):
        assert f"| `{limit.name}` |" in GUIDE
        if limit.name != "merge":
            assert f"{limit.default:,g}" in GUIDE, limit.name
    for option in fields(SubscriberOptions):
        assert f"`{option.name}`" in GUIDE
