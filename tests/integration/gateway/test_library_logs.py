"""Libraries' records of the standard logging, in a process of its own."""

import json
import subprocess
import sys

LIBRARIES = """
import logging
from schemas.logs import configure_logging
from schemas.settings import LogSettings
configure_logging(
    LogSettings(level="debug", format="json", slow_batch_triggers=3.0, lag_records=100, progress_every_s=0)
)
logging.getLogger("websockets.server").debug("< BINARY secret-payload")
logging.getLogger("aiohttp.server").info("secret-header")
logging.getLogger("librdkafka").warning("%s", "a broker is down")
"""


def test_libraries_are_heard_from_warnings_up_in_the_same_form() -> None:
    """At debug level some of them write what they carry."""
    done = subprocess.run([sys.executable, "-c", LIBRARIES], check=True, capture_output=True, text=True)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["event"], line["level"], line["logger"]) == ("a broker is down", "warning", "librdkafka")
