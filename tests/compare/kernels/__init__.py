"""Plain Pallas programs, one file a family; `tests/compare/sides.py` loads each of them once for each side."""
