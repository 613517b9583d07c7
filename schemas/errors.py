"""The root of every error Waystation raises on purpose.

WaystationError
├── SettingsError          a configuration file or environment override is wrong
├── RecordError            a record on a Kafka topic cannot be parsed (goes to `quarantine`)
│   └── NewerVersion       a later release has written it
├── pipelines.kafka (broker_topics, starting_offsets, writer), pipelines.storage.checkpoints: a query cannot go on …
├── gateway.errors.GatewayError …
└── jobs.errors.JobError …

The message of such an error is one sentence for its reader: what was wrong, and what to do. This file needs only the
standard library: an installation that has just begun imports it.
"""


class WaystationError(Exception):
    """Base of all errors raised by Waystation; its text is meant for the user."""

    exit_status = 1
    """The exit status of a program that ends with this error."""


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file of text cannot be read or written, for a sentence that names the file."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8; save it as UTF-8"
    return error.strerror or str(error)


class SettingsError(WaystationError):
    """A setting is unknown or its value is not allowed. The text names the key, the value and what is allowed."""


class RecordError(WaystationError):
    """A record does not follow its declared format; the text is the `reason` written to `quarantine`."""


class NewerVersion(RecordError):
    """A record has a version that only a later release reads. It may be right, so leaving it out would lose what it
    says."""
