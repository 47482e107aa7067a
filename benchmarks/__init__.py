"""Measurements side by side with the peers, in one run: `python -m benchmarks`, or `make bench`.

    measure     contenders and comparisons: checked against float64, timed in turns
    peers       the other implementations, or why one is missing
    cases       the comparisons, and their floors
    cold        a fresh process: import, first call, second call
    scaling     an expert layer on many processes, and a model of many GPUs: `python -m benchmarks.scaling`
    report      the tables, on the terminal and in docs/measured

A benchmark is not a test: tests never measure time.
"""
