"""Activations and what goes with them, with the names of `jax.nn`, in kernels and outside.

from palladio import nn
"""

from palladio.array.functions.activations import *  # noqa: F403
from palladio.array.functions.activations import __all__ as __all__
