"""A process that publishes with the client library until it is killed, or its disk is gone."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from jobs.stack.process import wait_until
from tests.documents import ROOT

STOPPED_S = 10.0

# Arguments: a connect point, the version of MQTT, the store, and for Kafka the topic. Over HTTP and Kafka there are
# several topics, because HTTP sends what goes to one topic one after the other.
#
# Publishes numbers, from the one after the last that is on disk: `sequence` counts accepted messages, so each number is
# the sequence of its message, and a number is never published twice.
PUBLISHER = """
import asyncio, sys
from waystation import Client, KafkaOptions

async def main(url, version, store, kafka=""):
    options = {"kafka": KafkaOptions(topic=kafka)} if kafka else {}
    topics = ["n"] if url.startswith(("mqtt", "ws")) else ["n/1", "n/2", "n/3"]
    async with Client(
        client_id="publisher", connect_points=[url], store=store, mqtt_version=version, **options
    ) as client:
        while True:
            first = client._outbox.last_sequence + 1
            batch = [
                client.publish(topics[number % len(topics)], str(number), qos=1 + number % 2)
                for number in range(first, first + 20)
            ]
            for message in await asyncio.gather(*batch):
                print(message.sequence, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def killed_after(seconds: float, *arguments: str) -> list[int]:
    """Runs the publisher and kills it; the sequences that it was told are accepted."""
    told, errors = await _run(seconds, lambda _: None, *arguments)
    assert errors == b""
    return told


async def cut_off_after(seconds: float, cut: Callable[[], None], *arguments: str, script: str = PUBLISHER) -> list[int]:
    """Runs the publisher, or another script that prints what was accepted; calls `cut`, which takes its disk away, and
    kills it; the accepted sequences.

    It is stopped meanwhile, between two system calls: an fsync that the shutdown of a file system overtakes may report
    success."""

    def stop_and_cut(process: asyncio.subprocess.Process) -> None:
        process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: is_stopped(process.pid), STOPPED_S)
        cut()

    told, _ = await _run(seconds, stop_and_cut, *arguments, script=script)
    return told


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are."""
    states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


async def _run(
    seconds: float, end: Callable[[asyncio.subprocess.Process], None], *arguments: str, script: str = PUBLISHER
) -> tuple[list[int], bytes]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = await process.stdout.readline()
    reading = asyncio.create_task(process.stdout.read())
    await asyncio.sleep(seconds)  # a random moment is what is tested
    with contextlib.suppress(ProcessLookupError):
        end(process)
        process.send_signal(signal.SIGKILL)
    told = first + await reading
    errors = await process.stderr.read()
    await process.wait()
    return [int(line) for line in told.splitlines() if line], errors
