"""A mesh's authority for tests of processes: `waystation ca`, without a process of its own."""

import time
from pathlib import Path

from bundles.receipt import Role
from edge.enrol import authority_files
from edge.enrol.authority_files import AuthorityFiles


class MeshAuthority:
    """In `directory`/authority."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / "authority"
        authority_files.init(self.path, "tests", time.time())
        self.files = AuthorityFiles(self.path, time.time)

    def issue(self, name: str, directory: Path, *roles: Role) -> None:
        """An identity as files, as `waystation ca issue` makes it."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.files.issue(name, roles or (Role.RECIPIENT,), directory)
