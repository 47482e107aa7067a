"""Tests and benchmarks on a card: whether kernels are correct there, and how fast they are against the peers.

    make test-gpu     the points that only a card can settle, then the conformance suite
    make bench-gpu    the table of docs/hopper.md, each ratio from one run

Each ends within ten minutes and writes a file of results with card, clocks and versions, after each result: a run that
ends early keeps the results until then. Points, shares of rows and cases run in processes of their own. An error of a
kernel destroys the CUDA context of its process, and a deadlock is ended with it: another process goes on after that
point, row or case.
"""
