"""Calls of concurrent programs: `kernel`, `mpmd_map`, meshes, and who owns the scratch."""
