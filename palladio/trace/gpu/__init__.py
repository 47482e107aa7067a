"""What only kernels for GPUs use: barriers, clusters, asynchronous copies, layouts, the tensor cores."""
