"""Kernels on a card: loaded, launched on the caller's stream, on the caller's arrays.

Everything here goes through the CUDA driver, by NVIDIA's `cuda-bindings`. A call of a kernel that was called before is
one look-up and one call of the driver: no allocation besides its results, and no synchronisation.
"""
