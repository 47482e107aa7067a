"""Loads, stores, gathers and scatters on the CPU, and the views of blocks that they go through."""
