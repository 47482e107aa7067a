"""Floor 6: pipelines inside kernels, and the block specifications and block maps that they share with `pallas_call`."""
