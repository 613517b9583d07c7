"""Settings for the location of the tables: `[storage]`. `conf/base.toml` documents every key.

One section serves both readers and writers of a store: deltalake, which is configured by the environment
(:func:`store_environment`), and Spark, which uses Hadoop's settings (:func:`hadoop_settings`).
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from schemas.errors import SettingsError
from schemas.sections import Section

STORES = {"": "directory", "file": "directory", "s3a": "s3", "abfss": "azure", "gs": "gcs"}
"""Schemes that both Spark and deltalake support, and the kind of store each stands for."""


class StorageSettings(Section, frozen=True, kw_only=True):
    """`secret_file` contains the store's secret: S3's secret key or Azure's account key. For Google it is the key file
    itself."""

    tables: str
    endpoint: str
    region: str
    path_style: bool
    access_key: str
    secret_file: str
    deltalake: dict[str, str]
    hadoop: dict[str, str]

    @property
    def kind(self) -> str:
        """`directory`, `s3`, `azure` or `gcs`."""
        return STORES[urlsplit(self.tables).scheme]


def check_storage(storage: StorageSettings) -> None:
    """The rules between the keys of `[storage]`. Raises SettingsError."""
    scheme = urlsplit(storage.tables).scheme
    if scheme not in STORES:
        raise SettingsError(
            f"storage.tables = {storage.tables!r} is not allowed: Spark and deltalake both support s3a://, abfss:// "
            f"and gs://; mount anything else and name the directory"
        )
    kind = storage.kind
    of_s3 = ("endpoint", "region", "access_key")
    meaningless = [key for key in of_s3 if getattr(storage, key) and kind != "s3"]
    meaningless += ["path_style"] if storage.path_style and kind != "s3" else []
    meaningless += ["secret_file"] if storage.secret_file and kind == "directory" else []
    if meaningless:
        raise SettingsError(
            f"storage.{meaningless[0]} does not apply to storage.tables = {storage.tables!r}, only to "
            f"{'s3a://' if meaningless[0] != 'secret_file' else 'object stores'}: leave it empty"
        )
    if kind == "s3" and bool(storage.access_key) != bool(storage.secret_file):
        raise SettingsError(
            "storage.access_key and storage.secret_file belong together: set both, or neither to use the machine's own "
            "rights"
        )


def store_environment(storage: StorageSettings, secret: str) -> dict[str, str]:
    """Environment variables of a store for deltalake and Arrow; `secret` is the content of `secret_file`."""
    environment: dict[str, str] = {}
    match storage.kind:
        case "s3":
            environment = {
                "AWS_ENDPOINT_URL": storage.endpoint,
                "AWS_REGION": storage.region,
                "AWS_ACCESS_KEY_ID": storage.access_key,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_ALLOW_HTTP": "true" if storage.endpoint.startswith("http://") else "",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "" if storage.path_style or not storage.endpoint else "true",
            }
        case "azure":
            environment = {"AZURE_STORAGE_ACCOUNT_NAME": account(storage), "AZURE_STORAGE_ACCOUNT_KEY": secret}
        case "gcs":
            # The first is deltalake's name; the second is that of Google's own library, which Arrow uses.
            names = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS")
            environment = dict.fromkeys(names, storage.secret_file)
    return {name: value for name, value in environment.items() if value} | storage.deltalake


def hadoop_settings(storage: StorageSettings, secret: str) -> dict[str, str]:
    """The same for Hadoop's file systems, with Hadoop's names."""
    settings: Mapping[str, str] = {}
    match storage.kind:
        case "s3":
            settings = {
                "fs.s3a.endpoint": storage.endpoint,
                "fs.s3a.endpoint.region": storage.region,
                "fs.s3a.path.style.access": "true" if storage.path_style else "",
                "fs.s3a.access.key": storage.access_key,
                "fs.s3a.secret.key": secret,
                "fs.s3a.connection.ssl.enabled": "false" if storage.endpoint.startswith("http://") else "",
            }
        case "azure":
            settings = {f"fs.azure.account.key.{account(storage)}.dfs.core.windows.net": secret}
        case "gcs":
            settings = {
                "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
                "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE" if storage.secret_file else "",
                "fs.gs.auth.service.account.json.keyfile": storage.secret_file,
            }
    return {name: value for name, value in settings.items() if value} | storage.hadoop


def account(storage: StorageSettings) -> str:
    """The storage account of `abfss://container@account.dfs.core.windows.net/path`."""
    return (urlsplit(storage.tables).hostname or "").partition(".")[0]
