"""How a part of a stack announces that it is ready: a JSON file at `<data>/ready/<part>.json`.

The supervisor deletes the file before each start of the part and waits for it. The part learns its name from the
environment variable `WAYSTATION_PART`; a process started by hand has none and announces nothing. Later `/readyz` of its
metrics port reports whether it is ready.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident
from typing import Any

PART_VARIABLE = "WAYSTATION_PART"


def ready_file(data: str | Path, part: str) -> Path:
    return Path(data) / "ready" / f"{part}.json"


def alongside(part: str) -> str:
    """The name under which the candidate that is to replace a part announces that it is ready."""
    return f"{part}.alongside"


def announce_ready(data: str | Path, part: str, content: Mapping[str, Any]) -> None:
    """Announce that `part` is ready.

    A gateway's content is `{"listeners": {"mqtt": "127.0.0.1:1883", …}, "recovered": {"egress": 12, …}}`; `recovered`
    says how many records it read to recover. A Spark application's is `{"listeners": {"ledger-metrics":
    "127.0.0.1:9467"}}`, and the ledger's, once each of its queries has started, also has `"settled": true`.
    """
    write_json(ready_file(data, part), content)


def read_ready(data: str | Path, part: str) -> dict[str, Any] | None:
    """What `part` announced; None if nothing."""
    return read_json(ready_file(data, part))


def readiness_report(faults: Mapping[str, str]) -> dict[str, Any]:
    """The content of `/readyz`: `{"ready": false, "parts": {"kafka": {"ready": false, "detail": "no broker"}, …}}`.
    `faults` has what is wrong with each part, "" if nothing is."""
    parts = {part: {"ready": not fault, "detail": fault or "ok"} for part, fault in faults.items()}
    return {"ready": not any(faults.values()), "parts": parts}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write atomically: a reader sees the old content or the new. Several processes and threads may write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    staged.write_text(json.dumps(content, indent=2) + "\n")
    staged.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None if there is no such file or it holds something else."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
