"""Errors of the simulation.

WaystationError
└── SimulationError
    └── TraceError    a contact trace is missing or is not one
"""

from schemas.errors import WaystationError


class SimulationError(WaystationError):
    """Base of all errors of the simulation."""


class TraceError(SimulationError):
    """A contact trace cannot be read."""
