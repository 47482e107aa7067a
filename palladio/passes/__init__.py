"""Floor 6: programs to programs, one pass a module."""
