"""Barriers, clusters, asynchronous copies, layouts and the tensor cores: the part of tracing for GPUs only."""
