"""On a card: proof that kernels are right there, and the benchmarks beside the peers.

    make test-gpu     the points that only a card can settle, then the conformance suite
    make bench-gpu    the table of docs/hopper.md, each ratio from one run

Each ends inside ten minutes and writes a file of results with card, clocks and versions, line by line as they come:
what ended early has the results until then. Every point, share of rows and case runs in a process of its own, since an
error of a kernel ends the CUDA context of its process.
"""
