"""Whether the ledger's tables exist, and if not why: the directory searched, and what to do."""

from pathlib import Path

from jobs.stack.state import NAME_IT, state_if_running
from schemas.tables import TABLES


def why_no_tables(tables: str) -> str:
    """Why there is no table under `tables`, a directory (usually `tables` in the data directory) or a URI."""
    if "://" in tables:
        return f"there are no tables in {tables}: check storage.tables, or start the applications that write there"
    directory = Path(tables)
    data = directory.parent
    if not data.is_dir():
        return f"no stack has ever run in {data}, which does not exist: {NAME_IT}"
    if state_if_running(data) is not None:
        return (
            f"there are no tables in {directory} yet: the running stack is about to create them; try again in a moment"
        )
    return f"there are no tables in {directory}, because no stack has run there: {NAME_IT}"


def has_tables(tables: str) -> bool:
    """Whether there is a table under `tables`; always True for an object store."""
    return "://" in tables or any((Path(tables) / name / "_delta_log").is_dir() for name in TABLES)
