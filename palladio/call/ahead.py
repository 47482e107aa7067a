"""Functions staged ahead of their calls, kept under keys that their callers give.

Each call of `pallas_call` or `jit` inspects its arguments and everything that the kernel captures, to decide whether
prepared code can be reused. A library function depends on its arguments alone, and inspects them anyway. It keeps
staged calls under its own keys, so that a later call goes from the key to the machine code.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.array.copies import note_copy
from palladio.array.foreign import common_library, from_numpy, library_of, tensor_maker, to_numpy
from palladio.array.on_card import Conditions, Layout, Strided, all_on_card, card_of
from palladio.array.on_card import library_of as library_on_card
from palladio.array.tensors import facts_of
from palladio.base import knobs, trees
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.base.knobs import thread_count
from palladio.call.out_arrays import checked_buffers
from palladio.call.staged import CALLS, owned
from palladio.call.tpu.info import UNDESCRIBED
from palladio.call.tpu.info import described as described_tpu
from palladio.driver.executors import FOLLOWING, Executor, choose, follows_arrays
from palladio.ir.evaluate import Runner
from palladio.trace.debug import UNCHECKED, checks_enabled, chosen_checks, collected_checks
from palladio.trace.gpu.hardware import UNLIMITED, limits_enabled
from palladio.trace.trace import NOT_TRACED, current_trace
from palladio.types import dtypes
from palladio.types.types import ArrayType, Shape

ONE_RESULT = trees.flatten(0)[1]
"""The structure of a result that is one array."""


_ARRAYS = {np.ndarray}


class Ahead:
    """A function staged for arrays of some shapes and dtypes.

    `jit(f).ahead(...)` makes it. Captured values are those at the time of staging. A single result array is
    returned alone, several in the structure in which the function returns them.
    """

    def __init__(
        self,
        run: Runner,
        captured: Sequence[Any],
        types: Sequence[ArrayType],
        names: Sequence[str],
        results: Sequence[ArrayType],
        structure: trees.Structure,
        growing: Sequence[int],
        own_rows: Sequence[Sequence[int]] = (),
    ) -> None:
        self._run = run
        self._captured = list(captured)
        self._types = list(types)
        self._known = [(type.shape, type.dtype) for type in types]
        self._names = list(names)
        self._results = results
        self._result = results[0] if len(results) == 1 else None
        self._structure = structure
        self._growing = growing
        short = getattr(run, "kept", None)  # an executor may have a shorter way from arrays to results
        self._short = None if short is None or captured or self._result is None else short(self._types)
        self._on_card = short is not None
        self._rows = self._result.shape[0] if self._result is not None and self._result.shape else None
        # Arrays of their own, of the program's inputs alone.
        self._makes_results = self._result is not None and not captured and getattr(run, "makes_results", False)
        self._first_rows = None if self._result is None else getattr(run, "first_rows", None)  # without copies
        self._own_rows = {n: number for number, positions in enumerate(own_rows) for n in positions}
        self._first_own = min(self._own_rows.values(), default=0)
        made = getattr(run, "own_rows", None) if own_rows and self._result is not None and not captured else None
        # Indexed by whether the result has fewer rows too.
        self._in_place = [made and made(tuple(self._own_rows), has_rows) for has_rows in (False, True)]

    def __call__(self, *arrays: Any, out: Any = None, rows: int | None = None) -> Any:
        """The result of the function on arrays.

        Args:
            arrays: of the shapes and dtypes that it was staged for. One that is smaller along the axis that may grow,
                the rows by default, is padded with zeros. On the CPU it is not copied for that, if the function is
                one kernel whose parallel steps each have a block of rows.
            out: an array for the result, as in a call of `pallas_call`. It is returned.
            rows: the number of rows of the result to compute, all by default. Arrays of the first sequence of
                `own_rows` have as many.

        Raises:
            PalladioTypeError, PalladioValueError: arrays that it was not staged for; `out` or `rows` for several
                results; `rows` that the result does not have; for `out` as in `pallas_call`.
        """
        short = self._short
        if short is not None and short.exchanged is not None and rows is None:
            found = short.exchanged(arrays, out)
            if found is not None:
                return found
        with at_call():
            makes_results = self._makes_results and self._in_place[rows is not None] is None
            if makes_results and out is None and self._fits(arrays, rows):
                return self._run(arrays)[0]
            if self._result is None and (out is not None or rows is not None):
                raise PalladioTypeError(
                    "a function staged ahead of several results takes neither out nor rows",
                    argument="rows" if out is None else "out",
                )
            rows = None if rows is None else self._count(rows)
            whole = rows is None or rows == self._result.shape[0]  # type: ignore[union-attr]
            if self._short is not None and whole and len(arrays) == len(self._types):
                found = self._short(arrays, out)
                if found is not None:
                    return found
            if len(arrays) != len(self._types):
                raise PalladioTypeError(
                    "another number of arrays than the function was staged for",
                    expected=len(self._types),
                    got=len(arrays),
                )
            in_place = self._in_place[rows is not None]
            if in_place is not None:
                return self._run_in_place(in_place, arrays, out, rows)
            if self._on_card and card_of(arrays) is not None:
                return self._run_on_card(arrays, out, rows)
            if self._first_rows is not None and rows and self._has_fewer(arrays):
                found = self._run_first(arrays, out, rows)
                if found is not None:
                    return found
            values = list(arrays)
            library = "numpy"
            for n, value in enumerate(arrays):
                if type(value) is not np.ndarray:
                    library = library_of(value) if library == "numpy" else library
                elif (value.shape, value.dtype) == self._known[n]:
                    continue
                values[n] = _fitted(value, self._types[n], self._names[n], self._growing[n])
            if out is not None:
                return self._write(arrays, values, out, rows)
            given = values + self._captured
            results = self._run(given) if self._makes_results else owned(self._run(given), given)
            if self._result is None:
                if library != "numpy":
                    results = [from_numpy(result, library) for result in results]
                return trees.unflatten(self._structure, results)
            (result,) = results
            if rows is not None and rows < len(result):
                result = result[:rows]
            return result if library == "numpy" else from_numpy(result, library)

    def _fits(self, arrays: tuple[Any, ...], rows: Any) -> bool:
        """True for NumPy arrays of the shapes and dtypes that the function was staged for, and all rows."""
        if rows is not None and (type(rows) is not int or rows != self._rows):
            return False
        plain = {*map(type, arrays)} <= _ARRAYS
        return plain and [(each.shape, each.dtype) for each in arrays] == self._known

    def _count(self, rows: Any) -> int:
        """`rows` as an integer.

        Raises:
            PalladioValueError: the result does not have as many.
        """
        shape = self._result.shape  # type: ignore[union-attr]
        try:
            count = -1 if isinstance(rows, bool) else operator.index(rows)
        except TypeError:
            count = -1
        if not shape or not 0 <= count <= shape[0]:
            expected = f"an integer from 0 to {shape[0]}" if shape else "None, for a result without axes"
            rule = "not a number of rows that the result has"
            raise PalladioValueError(rule, argument="rows", expected=expected, got=repr(rows))
        return count

    def _has_fewer(self, arrays: tuple[Any, ...]) -> bool:
        """True if an array is not of the shape that the function was staged for."""
        shapes = (tuple(getattr(value, "shape", ())) for value in arrays)
        return any(shape != known[0] for shape, known in zip(shapes, self._known, strict=True))

    def _run_first(self, arrays: tuple[Any, ...], out: Any, rows: int) -> Any:
        """The first rows of the result, from arrays of as many rows; None where these have to be copied."""
        values = [np.asarray(to_numpy(value, name)) for value, name in zip(arrays, self._names, strict=True)]
        result: Any = self._result
        wanted = ArrayType((rows, *result.shape[1:]), result.dtype)
        buffers = None if out is None else checked_buffers(out, ONE_RESULT, [wanted], values, (), self._names)
        results = self._first_rows([*values, *self._captured], rows, buffers)  # type: ignore[misc]
        if results is None or out is not None:
            return None if results is None else out
        library = common_library(arrays)
        return results[0] if library == "numpy" else from_numpy(results[0], library)

    @property
    def types(self) -> Sequence[ArrayType]:
        """The types of the arrays that it was staged for."""
        return self._types

    @property
    def results(self) -> Sequence[ArrayType]:
        """The types of the results."""
        return self._results

    @property
    def on_card(self) -> bool:
        """True if it was staged for a GPU."""
        return self._on_card

    def run_on_card(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Run on arrays of a GPU, and store to others; all are `CardArray`s of these types."""
        self._run([*operands, *self._captured], results)

    def is_in_place(self, has_rows: bool) -> bool:
        """True if arrays of fewer rows are used without copies, by the promise of `own_rows`.

        Args:
            has_rows: the result has fewer too.
        """
        return self._in_place[has_rows] is not None

    def _run_in_place(self, in_place: Callable[..., Any], arrays: tuple[Any, ...], out: Any, rows: int | None) -> Any:
        """The result for arrays that may have fewer rows, without copies."""
        values, library, counts = [], "numpy", {0: rows}
        for n, (value, (shape, dtype)) in enumerate(zip(arrays, self._known, strict=True)):
            array = value
            if type(value) is not np.ndarray or value.dtype != dtype:  # e.g. of the other byte order
                library = library_of(value) if library == "numpy" else library
                array = np.asarray(to_numpy(value, self._names[n]))
            number = self._own_rows.get(n)
            if number is not None and array.ndim:
                count = counts.get(number)
                counts[number] = count = len(array) if count is None else count
                fits = len(array) == count <= shape[0] and array.shape[1:] == shape[1:]
            else:
                fits = array.shape == shape
            if not fits or array.dtype != dtype:
                raise _other(array, self._types[n], self._names[n])
            values.append(array)
        buffers = None
        if out is not None:
            result: Any = self._result
            wanted = result if rows is None else ArrayType((rows, *result.shape[1:]), result.dtype)
            buffers = checked_buffers(out, ONE_RESULT, [wanted], values, (), self._names)
        (found,) = in_place(values, rows or 0, buffers, counts[self._first_own] or 0)
        if out is not None:
            return out
        return found if library == "numpy" else from_numpy(found, library)

    def prepared(self, arrays: Sequence[Any], rows: int | None) -> Callable[..., Any] | None:
        """The function of NumPy arrays in row-major order with the types of these, which it does not check; None if it
        would copy them, or for an executor that has none.

        The function takes an array for the result too, after the arrays: plain, aligned, writable, in row-major order
        and apart from them. It returns this array; or None, with nothing written, for one of another shape or dtype.

        Args:
            rows: as in a call.
        """
        found = self._prepared(rows, [(array.shape, array.dtype) for array in arrays])
        return None if found is None else functools.partial(_run_at_call, found)

    def in_memory(self, arrays: Sequence[Any], rows: int | None) -> Callable[..., Any] | None:
        """As `prepared`, a function of addresses in host memory or NumPy arrays, and of the values that own the memory.
        Its result is a tensor, or the NumPy array that it is given for the result; None in a process without PyTorch.
        """
        if "torch" not in sys.modules:
            return None
        found = self._prepared(rows, [(tuple(array.shape), dtypes.canonical(array.dtype)) for array in arrays])
        if not hasattr(found, "at") or self._rows is None:
            return None
        as_tensor = tensor_maker(self._result.dtype)  # type: ignore[union-attr]

        def run(given: Sequence[Any], values: Sequence[Any], out: Any = None) -> Any:
            return as_tensor(found.at(given, values)) if out is None else found.at(given, values, out)

        return functools.partial(_run_at_call, run)

    def _prepared(self, rows: int | None, types: list[tuple[Shape, Any]]) -> Any:
        """The executor's function for arrays of these shapes and dtypes; None without one."""
        made = getattr(self._run, "prepared", None)
        if made is None or self._result is None or self._captured:
            return None
        if self._in_place[rows is not None] is None:
            return made(None, 1) if rows in (None, self._rows) and types == self._known else None
        if any(dtype != known for (_, dtype), (_, known) in zip(types, self._known, strict=True)):
            return None  # of the other byte order
        if self._first_own == 0 and rows is not None:
            return made(rows, rows)
        first = next(n for n, number in self._own_rows.items() if number == self._first_own)
        return made(rows, types[first][0][0])

    def ready(self, library: Any, device: int, shape: Layout, numbers: tuple[Any, ...] = ()) -> Any:
        """The function of addresses on a device, `palladio.hopper.launch.calls.ReadyCall`; None if there is none.

        Args:
            shape: the shape of the result, and its strides if it is not in row-major order.
            numbers: the last operands, if they are passed by value.
        """
        return None if self._short is None else self._short.ready(library, device, shape, numbers)

    def of_fewer_rows(
        self,
        operands: Mapping[int, tuple[int, int]],
        results: Mapping[int, tuple[int, int]],
        guarded: bool = False,
        blocks: int | None = None,
    ) -> Ahead | None:
        """The function for some arrays, and results, of fewer rows, without compiling anything; None if that is not
        possible. Unsafe: its caller knows that no row of a result depends on rows that are left out.

        Args:
            operands, results: by position, the axis of the rows, and how many there are.
            guarded, blocks: as in `palladio.hopper.lowered.FewerRows`.
        """
        made = getattr(self._run, "of_fewer_rows", None)
        if made is None or self._captured:
            return None
        from palladio.hopper.lowered import FewerRows  # only kernels for a GPU have such functions

        run = made(FewerRows(operands, results, guarded, blocks))
        if run is None:
            return None
        types, found = _resized(self._types, operands), _resized(self._results, results)
        return Ahead(run, (), types, self._names, found, self._structure, self._growing)

    def _run_on_card(self, arrays: tuple[Any, ...], out: Any, rows: int | None) -> Any:
        """The result for arrays in the memory of a GPU."""
        values = all_on_card(arrays, arrays, "args")
        for value, type_, name in zip(values, self._types, self._names, strict=True):
            if (value.shape, value.dtype) != (type_.shape, type_.dtype):
                raise _other(value, type_, name)
        result_type = self._result
        if result_type is None:
            return trees.unflatten(self._structure, [each.source for each in self._run(values + self._captured)])
        buffers = None if out is None else checked_buffers(out, ONE_RESULT, [result_type], values, (), self._names)
        (result,) = self._run(values + self._captured, buffers)
        if out is not None:
            return out
        return result.source if rows is None else result.source[:rows]

    def _write(self, arrays: tuple[Any, ...], values: list[Any], out: Any, rows: int | None) -> Any:
        result: Any = self._result
        wanted = result if rows is None else ArrayType((rows, *result.shape[1:]), result.dtype)
        given = [  # padded copies overlap nothing, and the same call with more rows would be refused
            value if tuple(getattr(array, "shape", ())) == value.shape else np.asarray(to_numpy(array, name))
            for array, value, name in zip(arrays, values, self._names, strict=True)
        ]
        (buffer,) = checked_buffers(out, ONE_RESULT, [wanted], given, (), self._names)
        if wanted == result:
            self._run(values + self._captured, [buffer])
        else:
            (result,) = self._run(values + self._captured)
            note_copy(buffer, "the first rows of a result go to out", "without out they are a view of the result")
            np.copyto(buffer, result[:rows])
        return out


def _run_at_call(run: Callable[..., Any], *arguments: Sequence[Any]) -> Any:
    try:
        return run(*arguments)
    except PalladioError:
        with at_call():
            raise


def _resized(types: Sequence[ArrayType], sizes: Mapping[int, tuple[int, int]]) -> list[ArrayType]:
    """The types with another size of an axis, by their positions."""
    found = list(types)
    for position, (axis, size) in sizes.items():
        shape, dtype = found[position].shape, found[position].dtype
        found[position] = ArrayType((*shape[:axis], size, *shape[axis + 1 :]), dtype)
    return found


def _fitted(value: Any, type_: ArrayType, name: str, axis: int) -> Any:
    """An array as NumPy's, as large along an axis as the function was staged for."""
    known = type(value) is np.ndarray and value.dtype == type_.dtype
    array = value if known else np.asarray(to_numpy(value, name))
    shape, wanted = array.shape, type_.shape
    if shape == wanted and array.dtype == type_.dtype:
        return array
    less = len(shape) == len(wanted) and shape[:axis] + wanted[axis : axis + 1] + shape[axis + 1 :] == wanted
    if array.dtype != type_.dtype or not less or shape > wanted:
        raise _other(array, type_, name)
    why = f"zeros fill up axis {axis} from {shape[axis]} to {wanted[axis]}"
    note_copy(array, why, "an array of the whole size is taken as it is")
    # Not np.zeros, which takes fresh pages from the system for a large array.
    whole, before = np.empty(type_.shape, type_.dtype), (slice(None),) * axis
    whole[(*before, slice(shape[axis]))] = array
    whole[(*before, slice(shape[axis], None))] = 0
    return whole


def _other(array: Any, type_: ArrayType, name: str) -> PalladioValueError:
    return PalladioValueError(
        "not an array that the function was staged for",
        argument=name,
        expected=str(type_),
        got=str(ArrayType(array.shape, array.dtype)),
    )


_ALL_KEPT: weakref.WeakSet[KeptCalls] = weakref.WeakSet()


def forget_calls() -> None:
    """Forget all prepared calls, including those that functions keep; later calls are prepared anew."""
    CALLS.clear()
    for kept in [*_ALL_KEPT]:
        kept.clear()


class KeptCalls:
    """Calls by the keys that a function makes of its arguments, separate for each executor, kind of checks, described
    TPU and number of threads, which tiles may depend on.

    Above `capacity` calls, the oldest is dropped. Thread-safe.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self._calls: dict[Hashable, Any] = {}
        self._again: dict[Hashable, tuple[list[Any], Any]] = {}
        self._on_card: dict[Hashable, Any] = {}
        self._last_on_card: dict[Hashable, Any] = {}  # hashing of shapes takes longer than comparing
        self._lock = threading.Lock()
        _ALL_KEPT.add(self)

    @property
    def usable(self) -> bool:
        """True if calls may be kept and found: not while a function is traced."""
        return current_trace() is None

    def find(self, key: Hashable, interpret: Any = None, arrays: Sequence[Any] = ()) -> Any:
        """The value kept under a key; None if there is nothing, if the key is None, or while a function is traced.

        Args:
            interpret: as in `pallas_call`.
            arrays: of the call, which may live on a GPU.
        """
        if key is None or current_trace() is not None:
            return None
        with at_call():
            executor = choose(interpret, arrays)
        return self._calls.get((key, *_surroundings(executor)))

    def keep(self, key: Hashable, call: Any, interpret: Any = None, arrays: Sequence[Any] = ()) -> None:
        """Keep a call under a key; `interpret` and `arrays` as in `find`."""
        with self._lock:
            if len(self._calls) >= self.capacity:
                self._calls.pop(next(iter(self._calls)))
            executor = choose(interpret, arrays)
            self._calls[(key, *_surroundings(executor))] = call

    def again(self, arrays: tuple[Any, ...], option: Hashable = None, out: Any = None) -> Any:
        """The result of the function that `keep_again` has kept for arrays like these; None if there is none for this
        executor, number of threads, kind of checks and described TPU, while a function is traced, or if it has none.

        Args:
            option: as in `keep_again`.
            out: an array for the result, which is returned. None is the result, and nothing is written, unless it is
                a NumPy array, aligned, writable, in row-major order and apart from the arrays.
        """
        key = _types_of(arrays, option)
        call = None if key is None else self._kept_again(key)
        if call is None:
            return None
        if out is None:
            return call(*arrays)
        if (
            type(out) is not np.ndarray
            or not out.flags.carray
            or any(np.may_share_memory(out, each) for each in arrays)
        ):
            return None
        return None if call(*arrays, out=out) is None else out

    def again_in_memory(self, tensors: tuple[Any, ...], option: Hashable = None, out: Any = None) -> Any:
        """As `again`, of tensors in host memory: the function gets their addresses too, and `out`, which is a tensor
        like these, as a NumPy array on its memory.
        """
        facts = facts_of(tensors if out is None else (*tensors, out)) if self._again else None
        if facts is None:
            return None
        types, addresses = facts
        call = self._kept_again((type(option), option, types if out is None else types[:-2]))
        if call is None:
            return None
        if out is None:
            return call(*tensors, addresses)
        start = addresses.pop()
        end = start + out.nbytes
        if any(at < end and start < at + each.nbytes for at, each in zip(addresses, tensors, strict=True)):
            return None
        try:
            array = to_numpy(out, "out")
        except PalladioError:  # e.g. of a dtype that Palladio does not have
            return None
        return out if array.flags.carray and call(*tensors, addresses, out=array) is not None else None

    def _kept_again(self, key: Hashable) -> Callable[..., Any] | None:
        """The function that is kept under a key, in the present state of the process."""
        found = self._again.get(key)
        if found is None or current_trace() is not None:
            return None
        settings, call = found
        return call if settings == [read() for read in SETTINGS] else None

    def keep_again(self, arrays: tuple[Any, ...], option: Hashable, call: Callable[..., Any]) -> None:
        """Keep a function for NumPy arrays in row-major order with the types of these, on the executor by default.
        Nothing is kept for others.

        Args:
            option: everything else that it depends on.
            call: the function. It takes `out` by name, if `again` is called with one, and returns None if that has
                another shape or dtype than the result.
        """
        self._keep_again(_types_of(arrays, option), call)

    def keep_again_in_memory(self, tensors: tuple[Any, ...], option: Hashable, call: Callable[..., Any]) -> None:
        """As `keep_again`, a function of tensors in host memory and of the list of their addresses."""
        facts = facts_of(tensors)
        if facts is not None:
            self._keep_again((type(option), option, facts[0]), call)

    def _keep_again(self, key: Hashable | None, call: Callable[..., Any]) -> None:
        if key is None:
            return
        with self._lock:
            if len(self._again) >= self.capacity:
                self._again.pop(next(iter(self._again)))
            self._again[key] = [read() for read in SETTINGS], call

    def on_card(self, key: Hashable, arrays: Sequence[Any], out: Any = None) -> Any:
        """The result of a call on arrays of a GPU that was kept by `keep_on_card`; None if there is none for these.

        Args:
            key: of the function and its other arguments. Shapes and dtypes of the arrays distinguish calls too.
            out: as in a call of `pallas_call`; None is the result if it cannot be used as it is.

        Raises:
            CardError: the driver fails.
        """
        if not self._last_on_card:
            return None
        try:
            last = self._last_on_card.get(key)
        except TypeError:  # no call is kept for an argument that is not hashable
            return None
        if last is None:
            return None
        if last.exchanged is not None:
            found = last.exchanged(arrays, out)
            if found is not None:
                return found
        library = _library(arrays[0])
        if library is None or library.facts is None or not _by_default():
            return None
        facts = library.facts(arrays)
        if facts is None:
            return None
        kinds, addresses = facts
        if last.kinds != kinds:
            last = self._on_card.get((key, tuple(kinds)))
            if last is None:
                return None
            self._last_on_card[key] = last
        try:
            return last(addresses, out)
        except PalladioError:
            with at_call():
                raise

    def keep_on_card(
        self,
        key: Hashable,
        arrays: Sequence[Any],
        call: Ahead,
        shape: Sequence[int],
        operands: Sequence[Any] | None = None,
        strides: Sequence[int] | None = None,
    ) -> None:
        """Keep a call for arrays of a GPU, if it can go from their addresses to the launch.

        Args:
            arrays: which the key and the result's shape belong to. The function was staged for the same memory, which
                it may see in other shapes.
            call: the staged function.
            shape: of the result.
            operands: the arrays as the function takes them. Arrays with gaps, or in another order, are kept if these
                are dense in the same memory.
            strides: of the result, in elements, if it is not in row-major order.
        """
        library = _library(arrays[0])
        facts = None if library is None or library.facts is None or not _by_default() else library.facts(arrays)
        if library is None or facts is None or not _in_place(library, facts, operands):
            return
        layout = tuple(shape) if strides is None else Strided(tuple(shape), tuple(strides))
        ready = call.ready(library, facts[0][0], layout)
        if ready is None:
            return
        ready.expect(facts[0], _DEFAULT)
        with self._lock:
            if len(self._on_card) >= self.capacity:
                gone = self._on_card.pop(next(iter(self._on_card)))
                self._last_on_card = {key: last for key, last in self._last_on_card.items() if last is not gone}
            self._on_card[key, tuple(facts[0])] = self._last_on_card[key] = ready

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._calls.clear()
            self._again.clear()
            self._on_card.clear()
            self._last_on_card.clear()


def _in_place(library: Any, facts: Any, operands: Sequence[Any] | None) -> bool:
    """True if a function whose operands these are reads the memory of arrays with these facts."""
    if not any(isinstance(each, Strided) for each in facts[0]):
        return True
    own = None if operands is None else library.facts(operands)
    return own is not None and own[1] == facts[1] and not any(isinstance(each, Strided) for each in own[0])


def _surroundings(executor: Executor) -> tuple[Hashable, ...]:
    """The surroundings that a kept call depends on, besides the arguments of its function."""
    return executor.key, thread_count(), chosen_checks(), limits_enabled(), described_tpu()


def _types_of(arrays: tuple[Any, ...], option: Hashable) -> Hashable | None:
    """Everything but the elements of NumPy arrays in row-major order, as a key; None for others."""
    try:
        hash(option)
    except TypeError:
        return None
    key: list[Any] = [type(option), option]
    for array in arrays:
        if type(array) is not np.ndarray or not array.flags.c_contiguous:
            return None
        key += array.shape, array.dtype
    return tuple(key)


def _library(array: Any) -> Any:
    """The library of an array that may be on a GPU."""
    kind: Any = type(array)
    return library_on_card(kind)


_DEFAULT = FOLLOWING + UNCHECKED + NOT_TRACED + UNLIMITED
"""The conditions of `_by_default`, where no variable of the environment is set."""


_KNOBS = Conditions(absent=(knobs.threads.place, knobs.instructions.place))
SETTINGS = (*(FOLLOWING + UNCHECKED + UNLIMITED + UNDESCRIBED + _KNOBS).readers, collected_checks.get)
"""Functions whose results decide the surroundings of a call that names no executor. Comparing them takes a fifth of the
time of comparing the surroundings, and fewer lines of the caches."""


def _by_default() -> bool:
    """True if only the arrays determine where and how a call runs."""
    return current_trace() is None and follows_arrays() and not checks_enabled() and not limits_enabled()
