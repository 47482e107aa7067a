"""What is prepared once, and what must be prepared again: never a stale kernel."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import palladio as pl
from palladio.call.staged import CALLS
from palladio.driver.cache import PreparedCache
from palladio.driver.fingerprint import Unkeyable, fingerprint
from palladio.driver.packages import is_fixed

X = np.arange(4, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((4,), np.float32)
HALF = pl.BlockSpec((2,), lambda i: (i,))

FACTOR: Any = 2
SETTINGS = types.ModuleType("settings")
SETTINGS.factor = 2  # type: ignore[attr-defined]


class Settings:
    factor = 2


def prepared_by(*calls: Callable[[], Any]) -> list[int]:
    """How many calls each of these prepares."""
    counts = []
    for call in calls:
        before = CALLS.prepared
        call()
        counts.append(CALLS.prepared - before)
    return counts


def scaled_by(factor: Any, x: np.ndarray = X) -> np.ndarray:
    """A kernel that is defined anew on every call, as those of libraries are."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor

    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, grid=(2,), in_specs=[HALF], out_specs=HALF)(x)


@pytest.fixture(autouse=True)
def empty() -> None:
    CALLS.clear()


def test_a_closure_made_anew_is_not_traced_again() -> None:
    assert prepared_by(*[lambda: scaled_by(2)] * 3) == [1, 0, 0]


@pytest.mark.parametrize(
    ("first", "second"),
    [(2, 3), (2, 2.0), (1, True), (0.0, -0.0), (2.0, np.float16(2)), (np.float32(2), np.float32(3))],
    ids=repr,
)
def test_another_captured_value_is_another_kernel(first: Any, second: Any) -> None:
    assert prepared_by(lambda: scaled_by(first), lambda: scaled_by(second)) == [1, 1]
    for factor in (first, second):
        found = scaled_by(factor, X.astype(np.float32))
        np.testing.assert_array_equal(found, X * np.float32(factor))
        assert np.signbit(found[1]) == np.signbit(np.float32(factor))


def test_other_shapes_and_dtypes_are_other_kernels() -> None:
    calls = [X, np.ones(4, np.float16), np.ones(4, np.float32)]
    assert prepared_by(*[lambda x=x: scaled_by(2, x) for x in calls]) == [1, 1, 0]


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * FACTOR


def from_module(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * SETTINGS.factor


def from_class(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * Settings.factor


def factor_now() -> Any:
    return FACTOR


def through_a_function(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * factor_now()


class Kernel:
    def __call__(self, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * self.factor()

    def factor(self) -> Any:
        return FACTOR


@pytest.mark.parametrize("kernel", [double, through_a_function, Kernel(), Kernel().__call__, functools.partial(double)])
def test_a_changed_global_is_seen(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = pl.pallas_call(kernel, OUT)
    assert prepared_by(lambda: call(X), lambda: call(X)) == [1, 0]
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert call(X).tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize(("kernel", "owner"), [(from_module, SETTINGS), (from_class, Settings)])
def test_a_changed_attribute_is_seen(kernel: Any, owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = pl.pallas_call(kernel, OUT)
    assert prepared_by(lambda: call(X), lambda: call(X)) == [1, 0]
    monkeypatch.setattr(owner, "factor", 3)
    assert call(X).tolist() == [0, 3, 6, 9]


def test_a_changed_default_is_seen() -> None:
    def kernel(x_ref: Any, o_ref: Any, factor: float = 2) -> None:
        o_ref[...] = x_ref[...] * factor

    call = pl.pallas_call(kernel, OUT)
    call(X)
    kernel.__defaults__ = (3,)
    assert call(X).tolist() == [0, 3, 6, 9]


def test_a_changed_attribute_of_the_kernel_is_seen() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * kernel.factor  # type: ignore[attr-defined]

    call = pl.pallas_call(kernel, OUT)
    for factor in (2, 3):
        kernel.factor = factor  # type: ignore[attr-defined]
        assert call(X).tolist() == (X * factor).tolist()


def test_a_changed_field_of_a_kernel_object_is_seen() -> None:
    class Scale:
        __slots__ = ("factor",)

        def __call__(self, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * self.factor

    kernel = Scale()
    call = pl.pallas_call(kernel, OUT)
    for factor in (2, 3):
        kernel.factor = factor
        assert call(X).tolist() == (X * factor).tolist()


def test_a_changed_list_is_seen() -> None:
    factors = [2]

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factors[0]

    call = pl.pallas_call(kernel, OUT)
    call(X)
    factors[0] = 3
    assert call(X).tolist() == [0, 3, 6, 9]


def test_a_captured_array_of_shape_only_is_keyed_by_its_content() -> None:
    """A kernel may not capture an array, but it may look at one while it is traced."""

    def taking(order: np.ndarray) -> list[float]:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            for target, source in enumerate(order):
                o_ref[target] = x_ref[int(source)]

        return pl.pallas_call(kernel, OUT)(X).tolist()

    assert prepared_by(
        lambda: taking(np.array([3, 2, 1, 0])),
        lambda: taking(np.array([3, 2, 1, 0])),
        lambda: taking(np.array([0, 0, 1, 1])),
    ) == [1, 0, 1]
    assert taking(np.array([0, 0, 1, 1])) == [0, 0, 1, 1]


def shifted(shift: int) -> list[float]:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((2,), lambda i: ((i + shift) % 2,))
    return pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[spec], out_specs=HALF)(X).tolist()


def test_a_value_captured_by_an_index_map_is_seen() -> None:
    assert prepared_by(lambda: shifted(0), lambda: shifted(0), lambda: shifted(1)) == [1, 0, 1]
    assert (shifted(0), shifted(1)) == ([0, 1, 2, 3], [2, 3, 0, 1])


def test_what_has_no_key_is_traced_on_every_call() -> None:
    large = np.zeros(1 << 16, np.float32)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * float(large[0])

    call = pl.pallas_call(kernel, OUT)
    assert prepared_by(lambda: call(X), lambda: call(X)) == [1, 1]
    large[0] = 5
    with pytest.warns(pl.RetracedWarning):
        assert call(X).tolist() == [0, 5, 10, 15]
    with pytest.raises(Unkeyable):
        fingerprint(kernel)


def test_debug_prepares_on_every_call_so_that_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    call = pl.pallas_call(double, OUT, debug=True)
    call(X)
    first = capsys.readouterr().out
    call(X)
    assert capsys.readouterr().out == first != ""


def test_a_function_that_calls_itself_has_a_key() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = power(x_ref[...], 3)

    call = pl.pallas_call(kernel, OUT)
    assert prepared_by(lambda: call(X), lambda: call(X)) == [1, 0]
    assert call(X).tolist() == [0, 1, 8, 27]


def test_functions_that_call_each_other_have_keys_of_their_own() -> None:
    def pair(step: int) -> Callable[..., Any]:
        def even(n: int) -> Any:
            return 0 if n == 0 else odd(n - 1) + step

        def odd(n: int) -> Any:
            return even(n - 1)

        return even

    assert fingerprint(pair(1)) == fingerprint(pair(1))
    assert fingerprint(pair(1)) != fingerprint(pair(2))


def test_a_list_that_holds_itself_has_a_key() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert fingerprint(value) == fingerprint(value)


def test_many_functions_that_share_helpers_are_walked_once() -> None:
    """A diamond of calls on each of many levels: a walk of every path would never end."""
    functions: list[Any] = [lambda: 0]
    for _ in range(60):
        below = functions[-1]
        functions.append(lambda below=below, again=below: below() + again())
    assert fingerprint(functions[-1]) == fingerprint(functions[-1])


def test_the_checks_of_a_kernel_belong_to_its_key() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[0] > 0, "the first element is positive")
        o_ref[...] = x_ref[...]

    call = pl.pallas_call(kernel, OUT)
    call(X)
    with pl.enable_debug_checks(), pytest.raises(pl.DebugCheckError):
        call(X)
    call(X)


def test_a_failed_preparation_is_not_kept() -> None:
    broken = [True]

    def kernel(x_ref: Any, o_ref: Any) -> None:
        if broken:
            raise RuntimeError("not yet")
        o_ref[...] = x_ref[...]

    call = pl.pallas_call(kernel, OUT)
    with pytest.raises(Exception, match="not yet"):
        call(X)
    broken.clear()
    assert call(X).tolist() == X.tolist()


# One call object used again and again: nothing is walked over as long as nothing has changed.


class Holder:
    """A mutable thing of every kind that a kernel may look at."""

    def __init__(self) -> None:
        self.field: Any = 2


class WithSlot:
    __slots__ = ("field",)


@dataclasses.dataclass
class Record:
    field: Any = 2


def change_list(value: list[Any], new: Any) -> None:
    value[0] = new


def change_array(value: np.ndarray, new: Any) -> None:
    value[0] = new


def change_field(value: Any, new: Any) -> None:
    value.field = new


def change_dict(value: dict[str, Any], new: Any) -> None:
    value["field"] = new


def with_slot() -> WithSlot:
    value = WithSlot()
    value.field = 2
    return value


KEPT: list[tuple[Any, Callable[[Any], Any], Callable[[Any, Any], None]]] = [
    ([2], lambda value: value[0], change_list),
    ({"field": 2}, lambda value: value["field"], change_dict),
    (({"field": 2},), lambda value: value[0]["field"], lambda value, new: change_dict(value[0], new)),
    (np.array([2]), lambda value: int(value[0]), change_array),
    (Holder(), lambda value: value.field, change_field),
    (with_slot(), lambda value: value.field, change_field),
    (Record(), lambda value: value.field, change_field),
    (types.SimpleNamespace(field=2), lambda value: value.field, change_field),
    (
        functools.partial(lambda field: field, field=2),
        lambda value: value(),
        lambda v, new: v.keywords.update(field=new),
    ),
]


@pytest.mark.parametrize(("value", "look", "change"), KEPT, ids=lambda each: type(each).__name__)
def test_a_change_inside_of_what_is_captured_is_seen_by_the_next_call(
    value: Any, look: Callable[[Any], Any], change: Callable[[Any, Any], None]
) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * look(value)

    call = pl.pallas_call(kernel, OUT)
    for factor in (3, 3, 4, 5, 3):
        change(value, factor)
        assert call(X).tolist() == (X * factor).tolist()


def test_a_change_of_a_cell_is_seen_by_the_next_call() -> None:
    factor: Any = 2

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor

    call = pl.pallas_call(kernel, OUT)
    for factor in (2, 3, 3, 2.5):
        assert call(X).tolist() == (X * factor).tolist()


def test_a_variable_that_comes_and_goes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global of a built-in's name stands before it."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * max(2, 3)

    call = pl.pallas_call(kernel, OUT)
    assert call(X).tolist() == [0, 3, 6, 9]
    monkeypatch.setitem(globals(), "max", min)
    assert call(X).tolist() == [0, 2, 4, 6]
    monkeypatch.delitem(globals(), "max")
    assert call(X).tolist() == [0, 3, 6, 9]


def test_the_order_of_a_dictionary_is_seen() -> None:
    table = {"a": 2, "b": 3}

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * next(iter(table.values()))

    call = pl.pallas_call(kernel, OUT)
    assert call(X).tolist() == [0, 2, 4, 6]
    table["a"] = table.pop("a")
    assert call(X).tolist() == [0, 3, 6, 9]


def test_the_code_of_a_helper_is_seen() -> None:
    def factor() -> Any:
        return 2

    def other() -> Any:
        return 3

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor()

    call = pl.pallas_call(kernel, OUT)
    assert call(X).tolist() == [0, 2, 4, 6]
    factor.__code__ = other.__code__
    assert call(X).tolist() == [0, 3, 6, 9]


def test_a_method_put_in_place_is_seen() -> None:
    class Scale:
        def factor(self) -> Any:
            return 2

    class Half(Scale):
        pass

    scale = Half()

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * scale.factor()

    call = pl.pallas_call(kernel, OUT)
    assert call(X).tolist() == [0, 2, 4, 6]
    Half.factor = lambda self: 3  # type: ignore[method-assign]
    assert call(X).tolist() == [0, 3, 6, 9]
    del Half.factor
    Scale.factor = lambda self: 4  # type: ignore[method-assign]
    assert call(X).tolist() == [0, 4, 8, 12]


def test_another_class_of_an_object_is_seen() -> None:
    class One:
        factor = 2

    class Other:
        factor = 3

    scale = One()

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * scale.factor

    call = pl.pallas_call(kernel, OUT)
    assert call(X).tolist() == [0, 2, 4, 6]
    scale.__class__ = Other  # type: ignore[assignment]
    assert call(X).tolist() == [0, 3, 6, 9]


def test_a_changed_index_map_is_seen() -> None:
    spec = pl.BlockSpec((2,), lambda i: (i,))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    call = pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[spec], out_specs=HALF)
    assert call(X).tolist() == [0, 1, 2, 3]
    spec.index_map = lambda i: (1 - i,)
    assert call(X).tolist() == [2, 3, 0, 1]


def test_what_has_not_changed_is_not_walked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    call = pl.pallas_call(double, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF)
    call(X)
    monkeypatch.setattr("palladio.driver.fingerprint._walked", None)
    assert call(X).tolist() == [0, 2, 4, 6]


# The cache by itself.


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: PreparedCache[int] = PreparedCache(capacity=2)
    for key in (1, 2, 1, 3):
        cache.get(key, lambda key=key: key)  # type: ignore[misc]
    assert cache.prepared == 3
    cache.get(1, lambda: 1)
    assert cache.prepared == 3
    cache.get(2, lambda: 2)
    assert cache.prepared == 4


def test_the_cache_of_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CALLS, "capacity", 3)
    for factor in range(10):
        scaled_by(factor)
    assert len(CALLS._entries) == 3


def test_nothing_is_kept_without_a_key() -> None:
    cache: PreparedCache[int] = PreparedCache()
    assert [cache.get(None, lambda: 7) for _ in range(2)] == [7, 7]
    assert cache.prepared == 2


def test_threads_that_want_one_entry_wait_for_the_first() -> None:
    cache: PreparedCache[object] = PreparedCache()
    gate = threading.Barrier(8)
    found: list[object] = []

    def want() -> None:
        gate.wait()
        found.append(cache.get("key", object))

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.prepared == 1
    assert len({id(entry) for entry in found}) == 1


def test_a_second_thread_takes_over_from_one_that_failed() -> None:
    cache: PreparedCache[str] = PreparedCache()
    started, release = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def fail() -> str:
        started.set()
        release.wait()
        raise RuntimeError

    def first() -> None:
        with pytest.raises(RuntimeError):
            cache.get("key", fail)
        outcomes.append("failed")

    def second() -> None:
        outcomes.append(cache.get("key", lambda: "prepared"))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    started.wait()
    threads[1].start()
    release.set()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["failed", "prepared"]
    assert not cache._in_progress


class Dict(dict[str, Any]):
    pass


class Integer(int):
    pass


class Proxy:
    source: ClassVar = [1.0]

    @property
    def factor(self) -> Any:
        return self.source[0]


def readings() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Ways to read a factor of 1 inside a kernel, each with what makes the factor 2."""
    Proxy.source[0] = 1.0
    table, rows, bytes_ = {"factor": 1.0}, Dict(), bytearray(b"\1")
    get, view, number = table.get, memoryview(bytes_), Integer(7)
    rows.factor = number.factor = 1.0  # type: ignore[attr-defined]
    settings, variable, counter = types.ModuleType("settings"), ContextVar("variable", default=1.0), iter((1.0, 2.0))
    settings.factor = 1.0  # type: ignore[attr-defined]
    partial = functools.partial(int)
    partial.factor = 1.0  # type: ignore[attr-defined]
    return {
        "bound method": (lambda: get("factor"), lambda: table.update(factor=2.0)),
        "dict subclass": (lambda: rows.factor, lambda: setattr(rows, "factor", 2.0)),  # type: ignore[attr-defined]
        "int subclass": (lambda: number.factor, lambda: setattr(number, "factor", 2.0)),  # type: ignore[attr-defined]
        "partial": (lambda: partial.factor, lambda: setattr(partial, "factor", 2.0)),  # type: ignore[attr-defined]
        "module by text": (lambda: getattr(settings, "factor"), lambda: setattr(settings, "factor", 2.0)),  # noqa: B009
        "memory": (lambda: view[0], lambda: bytes_.__setitem__(0, 2)),
        "context": (variable.get, lambda: variable.set(2.0)),
        "iterator": (lambda: next(counter), lambda: None),
        "property": (lambda: Proxy().factor, lambda: Proxy.source.__setitem__(0, 2.0)),
    }


@pytest.mark.parametrize("way", readings())
def test_whatever_a_kernel_reads_is_seen_to_change(way: str) -> None:
    read, change = readings()[way]

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * read()

    call = pl.pallas_call(kernel, OUT)
    assert call(X)[3] == 3
    change()
    assert call(X)[3] == 6


LIBRARY = """
import numpy as np
from {package} import options

FACTOR = 2
TABLE = {{"offset": [0, 0]}}
calls = 0

def helper(x):
    return x * FACTOR

def function(x):
    global calls
    calls += 1
    return helper(x) + TABLE["offset"][0] + options.BIAS
"""


def library(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of this name in a folder, imported for the time of a test."""
    (folder / package).mkdir(parents=True)
    for name, text in (("__init__", ""), ("options", "BIAS = 0"), ("functions", LIBRARY.format(package=package))):
        path = folder / package / f"{name}.py"
        path.write_text(text)
        full = package if name == "__init__" else f"{package}.{name}"
        spec = importlib.util.spec_from_file_location(full, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, full, module)
        if name != "__init__":
            setattr(sys.modules[package], name, module)
        spec.loader.exec_module(module)
    return sys.modules[f"{package}.functions"]


@pytest.mark.parametrize(
    ("folder", "package"),
    [("lib/site-packages", "scales"), (".", "profile"), ("lib/site-packages", "profile")],
    ids=["installed", "named like the standard library", "both"],
)
def test_changed_globals_of_a_library_are_seen(
    folder: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = library(tmp_path / folder, package, monkeypatch)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = functions.function(x_ref[...])

    call = pl.pallas_call(kernel, OUT)
    np.testing.assert_array_equal(call(X), X * 2)
    functions.FACTOR = 3
    np.testing.assert_array_equal(call(X), X * 3)
    functions.TABLE["offset"][0] = 5
    np.testing.assert_array_equal(call(X), X * 3 + 5)
    functions.options.BIAS = 7
    np.testing.assert_array_equal(call(X), X * 3 + 12)
    functions.helper = lambda x: x
    np.testing.assert_array_equal(call(X), X + 12)


def test_a_counter_of_a_library_does_not_trace_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = library(tmp_path / "site-packages", "scales", monkeypatch)
    call = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., functions.function(x_ref[...])), OUT)
    assert prepared_by(*[lambda: call(X)] * 3) == [1, 0, 0]
    assert functions.calls == 1


def test_the_standard_library_is_not_looked_into() -> None:
    assert is_fixed("os") and is_fixed("sys") and is_fixed("math") and is_fixed("numpy")
    assert not is_fixed("tests")
