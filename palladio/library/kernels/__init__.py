"""The kernels behind functions of the library that have several forms."""
