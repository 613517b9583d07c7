"""Errors of the jobs.

JobError (schemas.errors.WaystationError)
├── JavaError            no usable JDK
├── JarsError            the JVM libraries cannot be resolved, or have not been
├── StackError           a part of the local stack cannot start, or the data directory is in use
│   └── PortTaken        a configured port is in use by another program
├── TopicsError          a topic on the broker differs from its declaration
├── GatewayApiError      a gateway refuses the request of a command
│   └── GatewayUnreachable   it does not answer, or is not serving
├── FeedCommandError     a gateway or Kafka refuses what is asked about a feed, or does not answer
├── SubmissionError      an application cannot be submitted to a cluster, or ended unexpectedly
├── LeaseError           another driver holds the checkpoints or took them over, or Kafka does not answer
├── QueryError           SQL over the ledger failed, or a table does not exist (yet)
│   └── TableUnreadable      a table is there, but cannot be read
├── ReportError          there is nothing to report on, or the page cannot be written
├── AuditError           there is nothing to audit, or it cannot be audited: exit status 2
├── QualityError         the quality job cannot judge the ledger: exit status 2
└── MaintainError        maintenance cannot start: exit status 2

The text is one sentence for the person at the keyboard: what is wrong and what to do.
"""

from schemas.errors import WaystationError


class JobError(WaystationError):
    """Base of all errors raised by :mod:`jobs`."""


class JavaError(JobError):
    """No usable JDK: names what was found and which one is needed."""


class JarsError(JobError):
    """The JVM libraries are missing or cannot be resolved."""


class StackError(JobError):
    """The local stack cannot start or stop."""


class PortTaken(StackError):
    """A configured port is in use by another program."""


class TopicsError(JobError):
    """A topic on the broker differs from its declaration."""


class GatewayApiError(JobError):
    """A gateway refuses the request of a command."""


class GatewayUnreachable(GatewayApiError):
    """A gateway's admin API does not answer, or the gateway is starting or being stopped."""


class FeedCommandError(JobError):
    """A gateway or Kafka refuses what is asked about a redundant feed, or does not answer."""


class QueryError(JobError):
    """SQL over the ledger failed."""


class TableUnreadable(QueryError):
    """A table of the ledger cannot be read: a file of it is damaged, or its store does not answer."""


class ReportError(JobError):
    """There is nothing to report on, or the page cannot be written."""


class AuditError(JobError):
    """Routing decisions cannot be audited. (Status 1: they were audited, and some differ.)"""

    exit_status = 2


class QualityError(JobError):
    """The quality job cannot judge the ledger. (Status 1: it did, and found faults.)"""

    exit_status = 2


class MaintainError(JobError):
    """Maintenance cannot start. (Status 1: it ran, and some steps failed.)"""

    exit_status = 2


class SubmissionError(JobError):
    """An application cannot be submitted to a cluster, or ended unexpectedly."""


class LeaseError(JobError):
    """Another driver holds the checkpoints, or may hold them because this driver has lost contact with Kafka."""
