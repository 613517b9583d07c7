"""`waystation topics create` on a real broker."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from jobs.cli.main import main
from jobs.stack.topics import TIMEOUT_S, admin_client, create_topics, declared_topics
from schemas.settings import load_settings
from schemas.topics import Topic
from tests.conftest import LocalBroker

BASE = Path(__file__).parents[3] / "conf" / "base.toml"

Create = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def overlay(tmp_path: Path, broker: LocalBroker, unique_prefix: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'[kafka]\nbootstrap = "{broker.bootstrap}"\nprefix = "{unique_prefix}"\ningress_partitions = 3\nshards = 5\n'
    )
    return file


@pytest.fixture
def create(overlay: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Create:
    """Run the command; its exit status, and the lines it says."""

    def run(*arguments: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["waystation", "topics", "create", "--conf", str(overlay), *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = capfd.readouterr()
        return status, (said.out + said.err).splitlines()

    return run


def test_it_makes_what_is_declared_and_only_once(create: Create, overlay: Path, broker: LocalBroker) -> None:
    """Partitions and settings are those that routing, compaction and restarts rely on; a dry run makes nothing."""
    declared = declared_topics(load_settings([BASE, overlay], {}))
    admin = admin_client(broker.bootstrap, {})
    status, lines = create("--replicas", "1", "--dry-run")
    assert (status, len(lines)) == (0, len(declared))
    assert all(line.startswith(f"missing: {topic.name} ") for line, topic in zip(lines, declared, strict=True))
    assert f"missing: {declared[0].name} partitions=3 replicas=1 message.timestamp.type=LogAppendTime" in lines[0]
    assert not {topic.name for topic in declared} & set(admin.list_topics(timeout=TIMEOUT_S).topics)

    status, again = create("--replicas", "1")
    assert (status, again) == (0, [line.replace("missing", "created") for line in lines])
    there = admin.list_topics(timeout=TIMEOUT_S).topics
    assert {topic.name: len(there[topic.name].partitions) for topic in declared} == {
        topic.name: topic.partitions for topic in declared
    }
    asked = {topic.name: ConfigResource(ResourceType.TOPIC, topic.name) for topic in declared}
    found = {each.name: future.result() for each, future in admin.describe_configs(list(asked.values())).items()}
    for topic in declared:
        assert {name: found[topic.name][name].value for name in topic.config} == topic.config

    assert create() == (0, [f"exists: {topic.name}" for topic in declared])


def test_topics_with_other_partitions_are_all_named_and_nothing_is_made(
    create: Create, broker: LocalBroker, unique_prefix: str
) -> None:
    """A sender's order and a session's home depend on the numbers."""
    admin = admin_client(broker.bootstrap, {})
    wrong = create_topics(admin, [Topic(f"{unique_prefix}{name}", 2, {}) for name in ("ingress", "egress")])
    for arguments in ([], ["--dry-run"]):
        status, [said] = create(*arguments)
        assert status == 1
        assert f"topic {unique_prefix}ingress has 2 partitions, but the configuration says 3" in said
        assert f"topic {unique_prefix}egress has 2 partitions, but the configuration says 5" in said
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert sorted(name for name in topics if name.startswith(unique_prefix)) == sorted(wrong)


def test_settings_of_topics_that_are_there_are_compared(
    create: Create, broker: LocalBroker, unique_prefix: str, overlay: Path
) -> None:
    """What only costs room or time is told. A topic with the producers' clock, or one that forgets sessions, is not."""
    admin, declared = admin_client(broker.bootstrap, {}), declared_topics(load_settings([BASE, overlay], {}))
    sessions, ingress = (next(t for t in declared if t.name == f"{unique_prefix}{n}") for n in ("sessions", "ingress"))
    create_topics(admin, [ingress._replace(config=ingress.config | {"retention.ms": "1000"})])
    status, lines = create("--dry-run")
    assert status == 0
    assert f"exists: {ingress.name}, but retention.ms=1000 (required: {ingress.config['retention.ms']})" in lines

    forgetful = sessions._replace(config=sessions.config | {"cleanup.policy": "delete"})
    create_topics(admin, [forgetful, Topic(f"{unique_prefix}egress", 5, {})])
    for arguments in ([], ["--dry-run"]):
        status, [said] = create(*arguments)
        assert status == 1
        assert f"topic {sessions.name} has cleanup.policy=delete, but needs compact" in said
        assert f"topic {unique_prefix}egress has message.timestamp.type=CreateTime, but needs LogAppendTime" in said
    there = admin.list_topics(timeout=TIMEOUT_S).topics
    assert len([name for name in there if name.startswith(unique_prefix)]) == 3


def test_more_replicas_than_brokers_are_refused(create: Create) -> None:
    status, [said] = create("--replicas", "3")
    assert status == 1
    assert said.startswith("the broker refused the request: ")
