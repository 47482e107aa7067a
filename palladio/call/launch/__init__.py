"""Calls of concurrent programs: `kernel`, `mpmd_map`, meshes, and scratch ownership."""
