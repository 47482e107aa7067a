"""Matrix products on the CPU: packing and blocking, micro-kernels, products with few vectors, `dot_general`."""
