"""Floor 7: grid kernels compiled for the host's processor through LLVM.

A kernel's program becomes the text of one LLVM function that runs a range of grid points (`lower`), by way of tiles
that are computed element by element as they are needed (`tiles`), with a rule for each operation (`rules`); `engine`
compiles and calls
it.
"""
