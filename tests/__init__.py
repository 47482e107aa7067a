"""The tests of Palladio. Directories below this one need no `__init__.py`."""
