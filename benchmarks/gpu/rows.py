"""The conformance suite on a card: every row for every dtype, as the host twin runs it in the tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from benchmarks.gpu.accuracy import SUMMED_8_BIT
from benchmarks.gpu.children import LOST, say
from benchmarks.gpu.poison import poisoned
from palladio.hopper.launch.driver import CardError
from palladio.types import dtypes
from tests.conformance import arrays, concurrent, elementwise, grids, memory
from tests.conformance.executors import HOPPER_TWIN
from tests.conformance.rows import TOLERANCES, Case, Row, fault, rows_of

ENTRY = dataclasses.replace(HOPPER_TWIN, name="hopper", dtypes=dtypes.ALL)


def all_rows() -> list[tuple[Row, np.dtype]]:
    """Every row for every dtype that it covers; float32 first, whose rows have run on the twin."""
    rows = [row for module in (elementwise, arrays, memory, grids, concurrent) for row in rows_of(vars(module))]
    pairs = [(row, dtype) for row in rows for dtype in row.dtypes]
    return sorted(pairs, key=lambda pair: pair[1] != dtypes.FLOAT32)


def share(number: int, of: int) -> list[tuple[Row, np.dtype]]:
    """The rows of process `number` of `of`."""
    return all_rows()[number::of]


def name_of(number: int, of: int, position: int) -> str:
    """The name of a row of a share."""
    rows = share(number, of)
    return _name(*rows[position]) if position < len(rows) else f"after the last of share {number}"


def _name(row: Row, dtype: np.dtype) -> str:
    return f"{row.title}-{dtypes.short_name(dtype)}"


def run(number: int, of: int, skip: int, most: int | None = None) -> int:
    """Run a share of the rows without the first `skip`, and report each outcome; returns the exit status."""
    print(f"rows of share {number} begin", flush=True)
    for row, dtype in share(number, of)[skip:most]:
        outcome, text, lost = _outcome(row, dtype)
        say(row=_name(row, dtype), outcome=outcome, text=text)
        if lost:
            return LOST
    return 0


def _outcome(row: Row, dtype: np.dtype) -> tuple[str, str, bool]:
    """`right`, `wrong`, `refused` or `error`, a text about it, and whether the process has to end."""
    case = row.case(dtype)
    try:
        with poisoned():
            results = case.call(ENTRY.name)(*case.inputs)
    except ENTRY.refusal as reason:
        known = ENTRY.reason(row.title, dtype)
        return "refused", "" if known else f"not listed: {str(reason).splitlines()[0]}", False
    except CardError as error:
        return "error", str(error).splitlines()[0], True
    except Exception as error:  # any failure is the outcome of the row
        return "error", f"{type(error).__name__}: {error}".splitlines()[0], False
    faults = list(_faults(results, case, row.family == "tensor_cores"))
    return ("wrong", faults[0], False) if faults else ("right", "", False)


def _is_8_bit_float(array: object) -> bool:
    dtype = np.asarray(array).dtype
    return dtypes.is_float(dtype) and dtype.itemsize == 1


def _faults(results: tuple[np.ndarray, ...], case: Case, on_tensor_cores: bool) -> Iterator[str]:
    of_8_bit_floats = on_tensor_cores and any(map(_is_8_bit_float, case.inputs))
    for number, (got, expected, wanted) in enumerate(zip(results, case.expected, case.outputs, strict=True)):
        slack = max(case.slack, SUMMED_8_BIT / TOLERANCES[str(wanted)]) if of_8_bit_floats else case.slack
        found = fault(got, expected, wanted, slack)
        if found:
            yield f"output {number}: {found.splitlines()[0]}"
