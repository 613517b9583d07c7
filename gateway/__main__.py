"""`python -m gateway`: one gateway process, configured by the environment (see schemas.settings.process_settings)."""

import os
import sys

import uvloop

from gateway.app import run
from schemas.errors import WaystationError
from schemas.logs import configure_logging
from schemas.readiness import PART_VARIABLE
from schemas.settings import process_settings


def main() -> int:
    try:
        settings = process_settings(os.environ)
        configure_logging(settings.log)
        uvloop.run(run(settings, os.environ.get(PART_VARIABLE, "")))
    except (WaystationError, OSError) as error:
        sys.stderr.write(f"gateway: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
