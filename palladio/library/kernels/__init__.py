"""The kernels of library functions that have several forms."""
