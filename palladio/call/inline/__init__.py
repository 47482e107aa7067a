"""Inlined kernel calls: the kernel's equations, in loops over the grid, become part of another program."""
