"""The kernels of grouped products and of the expert layer."""
