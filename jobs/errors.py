"""Errors of the jobs.

JobError (schemas.errors.WaystationError)
├── JavaError            no usable JDK, or the one there is does not fit
├── JarsError            the JVM libraries cannot be resolved, or have not been
├── StackError           a part of the local stack cannot start, or the data directory is in use
│   └── PortTaken        a port that was asked for is in use by another program
├── TopicsError          a topic on the broker differs from its declaration
├── GatewayApiError      a gateway does not answer, or refuses what was asked of it
├── SubmissionError      an application cannot be submitted to a cluster, or ended as it should not
├── LeaseError           another driver has the checkpoints, or got them, or Kafka does not say
├── QueryError           SQL over the ledger failed, or a table is not there (yet)
├── ReportError          there is nothing to report on, or the page cannot be written
├── AuditError           there is nothing to audit, or it cannot be: exit status 2
├── QualityError         the quality job cannot judge the ledger: exit status 2
└── MaintainError        maintenance cannot begin: exit status 2

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
    """A port that was asked for is in use by another program."""


class TopicsError(JobError):
    """A topic on the broker differs from its declaration."""


class GatewayApiError(JobError):
    """A gateway's admin API does not answer, or refuses."""


class QueryError(JobError):
    """SQL over the ledger failed."""


class ReportError(JobError):
    """There is nothing to report on, or the page cannot be written."""


class AuditError(JobError):
    """Routing decisions cannot be audited; status 1 says that they have been, and that some differ."""

    exit_status = 2


class QualityError(JobError):
    """The quality job cannot judge the ledger; status 1 says that it has, and found faults."""

    exit_status = 2


class MaintainError(JobError):
    """Maintenance cannot begin; status 1 says that it ran, and that some of its steps failed."""

    exit_status = 2


class SubmissionError(JobError):
    """An application cannot be submitted to a cluster, or has ended as it should not."""


class LeaseError(JobError):
    """The checkpoints are another driver's, or may be since Kafka has not heard of this one, or it of Kafka."""
