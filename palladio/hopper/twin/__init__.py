"""The host twin: generated kernels run on the CPU, on a simulated Hopper GPU that follows the PTX ISA to the letter.

The text of a kernel is the same as on the device; only the header differs. The threads of a block are fibers, shared
memory has the device's addresses, asynchronous operations complete late, early or at random times, and undefined
behaviour by the PTX ISA ends the run with an error that names thread, instruction and line. The twin is for tests; it
is slow, and it needs `g++`.

`docs/twin.md` describes what it can prove and what it cannot.
"""
