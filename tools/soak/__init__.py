"""`python -m tools.soak`: calls under bad conditions for some minutes, every result checked.

A part is a function of a `Soak`, in the module of its subject; `tools/soak/__main__.py` lists them. Each runs in a
separate process, which is killed when it hangs, so that a crash or a deadlock counts as a fault of that part.
"""
