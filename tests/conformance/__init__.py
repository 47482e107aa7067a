"""The conformance suite: what every executor owes, as rows of a table. `executors.py` is where one joins."""
