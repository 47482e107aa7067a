"""The functions with NumPy's names, one module a family. `palladio.array` collects them."""
