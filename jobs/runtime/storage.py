"""Access to a store from `[storage]`: deltalake's environment and Spark's settings.

How checkpoints are written depends on the scheme of the tables' URI.

* A directory: files are renamed to their final names, without the checksums of Hadoop's local file system if a job
  allows it.
* S3: renaming is not atomic. A checkpoint file becomes visible when its upload is completed, or never; tasks upload the
  files of a batch, and the job's commit completes the uploads (S3A's magic committer).
* Azure (with a hierarchical namespace): renaming is atomic; Spark's default is right.
* Google: renaming an object is a copy. Checkpoint files are small, and written by one driver.
"""

import os
from pathlib import Path

from jobs.runtime.submitted import is_submitted
from jobs.stack.jars import STORES, spark_jars, store_jars
from schemas.settings_files import read_secret
from schemas.storage_settings import StorageSettings, hadoop_settings, store_environment

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
RENAMING = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
UPLOADING = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

_S3 = {
    CHECKPOINTS: UPLOADING,
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}


def use_store(storage: StorageSettings) -> None:
    """Configures deltalake's access to the store, for this process and those it starts. Raises SettingsError."""
    os.environ |= store_environment(storage, _secret(storage))


def storage_settings(storage: StorageSettings) -> dict[str, str]:
    """The settings of a Spark session that reads and writes there, including secrets; with the jars for it, unless
    those came with a submission. Raises SettingsError, and JarsError if the jars are not resolved."""
    by_kind = {"s3": _S3, "gcs": {CHECKPOINTS: RENAMING}}
    settings = {f"spark.hadoop.{name}": value for name, value in hadoop_settings(storage, _secret(storage)).items()}
    if storage.kind in STORES and not is_submitted(os.environ):
        settings["spark.jars"] = ",".join(str(jar) for jar in [*spark_jars(), *store_jars(storage.kind)])
    return by_kind.get(storage.kind, {}) | settings


def _secret(storage: StorageSettings) -> str:
    """The content of the secret file; Google's key file is only named, not read."""
    if not storage.secret_file or storage.kind == "gcs":
        return ""
    return read_secret("storage.secret_file", str(Path(storage.secret_file)))
