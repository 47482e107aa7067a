"""The machine that runs concurrent kernels."""
