"""A forked process calls kernels, whatever threads of its parent were at when it began."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, signal, threading, warnings
import numpy as np
import palladio as pl
from palladio.cpu.runtime import machine_code

warnings.simplefilter("ignore", DeprecationWarning)  # of Python, where a process with threads forks
x = np.ones((8, 16), np.float32)

def times(factor):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor
    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype))

begun, slow, original = threading.Event(), times(5), machine_code._optimised

def optimised(*arguments):
    begun.set()
    threading.Event().wait(0.5)  # so that the fork is in the middle of it
    return original(*arguments)

machine_code._optimised = optimised
thread = threading.Thread(target=slow, args=(x,))
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    machine_code._optimised = original
    right = all(np.array_equal(call(x), factor * x) for call, factor in ((times(7), 7), (slow, 5)))
    os._exit(0 if right else 1)
thread.join()
print(os.waitpid(child, 0)[1], np.array_equal(slow(x), 5 * x))
"""


def test_a_process_forked_while_a_kernel_is_compiled_compiles_its_own() -> None:
    settings = {**os.environ, "PALLADIO_CACHE": "0", "PALLADIO_EXECUTOR": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 True\n", "")
