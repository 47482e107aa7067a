"""The instructions of a cubin, by CUDA's disassembler.

The disassembler comes with the CUDA toolkit, and with the Triton wheel. Only tools and tests use it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from importlib import util
from pathlib import Path

from palladio.base.errors import InternalError, PalladioNotImplementedError

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


def disassembled(code: bytes) -> str:
    """The instructions of a cubin as text, after the lines of source that they are of.

    Raises:
        PalladioNotImplementedError: if no disassembler is installed.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([_disassembler(), "-gi", "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout


def instructions(text: str) -> Counter[str]:
    """The count of each instruction in disassembled text, with its modifiers."""
    return Counter(_INSTRUCTION.findall(text))


def _disassembler() -> str:
    found = shutil.which("nvdisasm")
    if found is not None:
        return found
    triton = util.find_spec("triton")
    for place in (triton.submodule_search_locations or ()) if triton else ():
        path = Path(place) / "backends" / "nvidia" / "bin" / "nvdisasm"
        if path.exists():
            return str(path)
    raise PalladioNotImplementedError(
        "machine code for Hopper is shown by nvdisasm, which is not installed",
        hint="it comes with the CUDA toolkit, and with pip install triton",
    )
