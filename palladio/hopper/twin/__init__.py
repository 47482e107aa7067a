"""The host twin: generated kernels run on the processor, on a simulated Hopper that follows the PTX ISA to the letter.

The text of a kernel is the same as on the device; only the header differs. The threads of a block are fibers,
shared memory has the device's addresses, asynchronous operations complete late, early or at random moments, and
whatever the PTX ISA leaves undefined ends the run with a sentence that names thread, instruction and line. It is for
tests; nothing in it is fast, and it needs `g++`.

`docs/twin.md` says what it can prove and what it cannot.
"""
