"""Kernels written for Pallas, run in JAX's interpret mode and here, with nothing changed but their import lines."""
