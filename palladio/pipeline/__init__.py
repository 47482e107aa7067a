"""Floor 6: pipelines inside kernels, and the block specifications and block maps shared with `pallas_call`."""
