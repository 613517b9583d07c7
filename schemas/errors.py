"""The root of every error Waystation raises on purpose.

WaystationError
├── SettingsError          a configuration file or environment override is wrong
├── RecordError            a record on a Kafka topic cannot be parsed (goes to `quarantine`)
├── pipelines.kafka.starting_offsets, .checkpoints, .kafka_topics, .kafka_writer: why a query cannot begin or go on …
├── gateway.errors.GatewayError …
└── jobs.errors.JobError …

The message of such an error is one sentence for its reader: what was wrong, and what to do.
"""


class WaystationError(Exception):
    """Base of all errors raised by Waystation; its text is meant for the user."""

    exit_status = 1
    """Of a program that ends with it."""


class SettingsError(WaystationError):
    """A setting is unknown or has a value that is not allowed; names the key, the value and what is allowed."""


class RecordError(WaystationError):
    """A record does not follow its declared format; the text is the `reason` written to `quarantine`."""
