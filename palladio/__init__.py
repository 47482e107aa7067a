"""Palladio: a kernel language for tile programs, embedded in Python."""
