"""Resolve the JVM libraries while packages are still being installed: `waystation jars` needs some of those.

Run as a module, `python -m tools.resolve_jars`. Needs pyspark, and else only the standard library.
"""

import os
import sys

from jobs.stack.jars import resolve, say
from schemas.errors import WaystationError

if __name__ == "__main__":
    try:
        resolve(os.environ, say)
    except WaystationError as error:
        sys.exit(str(error))
