"""Kernel calls whose kernels are written out, in loops over the grid, in another program."""
