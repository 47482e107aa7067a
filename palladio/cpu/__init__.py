"""Floor 7: kernels compiled for the host's processor through LLVM.

A grid kernel's program becomes the text of one LLVM function that runs a range of grid points (`lower`), by way of
tiles that are computed element by element as they are needed (`tiles`), with a rule for each operation (`rules`);
`engine` compiles and calls it.

The programs of a launch become coroutines (`launch`, `launch_agents`), which stop where they wait, and a function that
lets them go on in turns (`launch_scheduler`); `launch_engine` compiles and calls it.
"""
