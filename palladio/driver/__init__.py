"""Floor 8: the way of a program to an executor.

Pipelines, the cache of prepared calls, executor choice, arrays in and out.
"""
