"""What can go wrong, as a tree::

    LaconicError
    |- ConfigError     a setting is unknown, of the wrong type or out of range
    |- FormatError     bytes are not what their format says
    |- PlanError       what was asked for cannot be arranged
    |- BackendError    kernels that were asked for do not exist here
    |- PeelingError    a sketch has too few cells for its entries; another seed or more cells may do
    |- HeadroomError   a sum of integers may not fit its type
    `- CommError       a peer is gone, out of step or too late

Messages read ``where: what was expected, got value; what to do``.
"""

__all__ = [
    "BackendError",
    "CommError",
    "ConfigError",
    "FormatError",
    "HeadroomError",
    "LaconicError",
    "PeelingError",
    "PlanError",
]


class LaconicError(Exception):
    """Anything that Laconic raises on purpose."""


class ConfigError(LaconicError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class FormatError(LaconicError, ValueError):
    """Bytes are not what their format says; the message names the field."""


class PlanError(LaconicError):
    """What was asked for cannot be arranged."""


class BackendError(LaconicError, RuntimeError):
    """Kernels that were asked for do not exist on this machine or in this build."""


class PeelingError(LaconicError, ArithmeticError):
    """A sketch has too few cells for its entries; another seed or more cells may do."""


class HeadroomError(LaconicError, OverflowError):
    """A sum of integers may not fit its type."""


class CommError(LaconicError, RuntimeError):
    """A peer is gone, out of step or too late."""
