"""The version of the package, which its metadata takes from here, and when this process imported it."""

import time

VERSION = "0.1.0"

IMPORTED_NS = time.time_ns()
"""In nanoseconds since 1970: sources that changed later are not those that run."""
