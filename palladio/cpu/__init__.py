"""Floor 7: kernels compiled for the host's processor through LLVM.

A grid kernel's program becomes the text of one LLVM function that runs a range of grid points (`lower`), by way of
lazy arrays, which are computed element by element as they are needed (`emit`), with a rule for each operation
(`rule_table` lists them; they are in `rules`, `access`, `products` and `launches`); `engine` compiles and calls it.

The programs of a launch become coroutines, and a scheduler resumes them in turns (`launches`). All of these use work
estimates (`analysis`), and the processor, machine code and workers (`runtime`).
"""
