"""Floor 8: from a traced program to an executor.

Pipelines, the cache of prepared calls, executor choice, arrays in and out.
"""
