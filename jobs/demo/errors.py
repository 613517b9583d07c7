"""Errors of the demo.

DemoError (jobs.errors.JobError)   the demo cannot run: no data for the date, a missing package, an unusable directory
"""

from jobs.errors import JobError


class DemoError(JobError):
    """The demo cannot run; the text says what to do."""
