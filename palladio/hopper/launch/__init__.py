"""Kernels on a card: loaded, launched on the caller's stream, on the caller's arrays.

Everything here uses the CUDA driver, by NVIDIA's `cuda-bindings`. A repeated call of a kernel is one look-up and one
call of the driver: no allocation except its results, and no synchronisation.
"""
