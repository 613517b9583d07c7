"""Delta tables as Arrow datasets whose files Arrow reads natively.

By default deltalake gives Arrow a file system of its own, written in Python. Arrow reads ahead on threads, and a query
with LIMIT ends before they do: a thread that calls Python while the interpreter exits crashes or hangs it. So this
module gives each kind of store one of Arrow's file systems, configured by the same environment as deltalake
(:func:`jobs.runtime.storage.use_store`).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from deltalake import DeltaTable
from pyarrow.dataset import Dataset


def dataset(table: DeltaTable | str, **options: Any) -> Dataset:
    """The version of the table that was opened, or the table at a URI (a directory or an object store's) as it is now.

    `options` are those of deltalake's `to_pyarrow_dataset`. Raises what deltalake raises if there is no table.
    """
    opened = DeltaTable(table) if isinstance(table, str) else table
    return opened.to_pyarrow_dataset(filesystem=file_system(opened.table_uri, os.environ), **options)


def file_system(uri: str, environ: Mapping[str, str]) -> pafs.FileSystem:
    """Arrow's file system with its root at `uri`, as deltalake reaches it by `environ`."""
    parts = urlsplit(uri)
    path = f"{parts.netloc}{unquote(parts.path)}"
    match parts.scheme:
        case "s3" | "s3a":
            return pafs.SubTreeFileSystem(path, pafs.S3FileSystem(**s3_options(environ)))
        case "gs":
            return pafs.SubTreeFileSystem(path, pafs.GcsFileSystem())
        case "abfss":
            container, _, host = parts.netloc.partition("@")
            azure = pafs.AzureFileSystem(
                host.partition(".")[0],
                account_key=environ.get("AZURE_STORAGE_ACCOUNT_KEY") or None,
                sas_token=environ.get("AZURE_STORAGE_SAS_TOKEN") or None,
            )
            return pafs.SubTreeFileSystem(f"{container}{unquote(parts.path)}", azure)
    directory = Path(unquote(parts.path) if parts.scheme == "file" else uri)
    return pafs.SubTreeFileSystem(str(directory.absolute()), pafs.LocalFileSystem())


def s3_options(environ: Mapping[str, str]) -> dict[str, Any]:
    """Options of Arrow's S3FileSystem that match these variables of deltalake. AWS's own library finds the rest, such
    as a profile or a role of the machine."""
    endpoint = environ.get("AWS_ENDPOINT_URL", "")
    known = {
        "access_key": environ.get("AWS_ACCESS_KEY_ID"),
        "secret_key": environ.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environ.get("AWS_SESSION_TOKEN"),
        "region": environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"),
        "endpoint_override": urlsplit(endpoint).netloc,
        "scheme": urlsplit(endpoint).scheme,
    }
    is_virtual = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
    return {name: value for name, value in known.items() if value} | {"force_virtual_addressing": is_virtual}
