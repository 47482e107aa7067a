"""Checks of the arguments of the library's functions, with their messages."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.activations import require_activation

Array = Any
Tile = tuple[int, int, int]
LookUp = Callable[[int, int, int], "Tile | None"]
Tiling = Tile | LookUp | Sequence["Tile | LookUp"]

FORWARD, LEFT_GRADIENT, RIGHT_GRADIENT = range(3)


def fail(kind: type[pl.PalladioError], rule: str, **details: Any) -> pl.PalladioError:
    """An error of a kind, located at the caller's line."""
    return kind(rule, location=pl.caller_location(), **details)


def float_dtype(kind: Any, argument: str) -> Any:
    """The float dtype of `kind`: a dtype of any library, or a name."""
    try:
        find = found_dtype if isinstance(kind, Hashable) else found_dtype.__wrapped__
        dtype, is_float = find(kind)
    except pl.PalladioTypeError as error:
        raise fail(
            pl.PalladioTypeError, error.rule, argument=argument, expected="a float dtype", got=str(kind)
        ) from None
    if not is_float:
        raise fail(
            pl.PalladioTypeError, "floats are needed", argument=argument, expected="a float dtype", got=str(kind)
        )
    return dtype


def heads_together(queries: Sequence[int], keys: Sequence[int]) -> int:
    """The number of consecutive heads of queries that share a head of keys.

    Args:
        queries, keys: the shapes of `q`, `[..., heads, m, d]`, and `k`, `[..., heads of keys, n, d]`.

    Raises:
        PalladioValueError: if they do not go together.
    """
    (*lead, _, d), (*others, n, width) = queries, keys
    if len(keys) == len(queries) and width == d and n and d:
        if others == lead:
            return 1
        if others[:-1] == lead[:-1] and others[-1] and lead[-1] % others[-1] == 0:
            return max(1, lead[-1] // others[-1])
    wanted = f"{(*lead, 'n', d)} with n and d at least 1"
    if others != lead and lead and lead[-1] > 1:
        wanted += f", or fewer heads, a divisor of {lead[-1]}"
    rule = "the keys do not go with the queries"
    raise fail(pl.PalladioValueError, rule, argument="k", expected=wanted, got=tuple(keys))


def result_dtype(preferred: Any, x: Array, y: Array, existing_out: Array | None = None) -> Any:
    """The dtype of a product: the preferred one, that of an existing result, or the operands' promoted dtype."""
    if preferred is None:
        preferred = getattr(existing_out, "dtype", None) or _common(x.dtype, y.dtype)
    return float_dtype(preferred, "preferred_element_type")


@functools.cache
def _common(x: Any, y: Any) -> Any:
    try:
        return jnp.promote_types(found_dtype(x)[0], found_dtype(y)[0])
    except pl.PalladioTypeError as error:
        raise fail(pl.PalladioTypeError, error.rule, got=error.got, hint=error.hint) from None


@functools.cache
def found_dtype(kind: Any) -> tuple[Any, bool]:
    """Our dtype for a dtype of any library or a name, and True if it is a float."""
    name = str(kind)
    dtype = jnp.dtype(name.removeprefix("torch.") if name.startswith("torch.") else kind)
    return dtype, bool(jnp.issubdtype(dtype, jnp.floating))


def dtype_of(value: Array) -> Any:
    """The dtype of an array of any library."""
    return found_dtype(value.dtype)[0]


def sum_dtype(x: Array, y: Array) -> Any:
    """The dtype in which products of elements of two arrays are summed: float64 if one of them is, else float32."""
    return _sums_of(x.dtype, y.dtype)


@functools.cache
def _sums_of(x: Any, y: Any) -> Any:
    return wide_dtype(_common(x, y))


def wide_dtype(dtype: Any) -> Any:
    """The dtype in which elements of a float dtype are summed: float64 for float64, else float32."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


def require_array(value: Any, argument: str, rank: int | None, meaning: str, floats: bool = True) -> tuple[int, ...]:
    """The shape of an array, after checks of its rank, unless this is None, and with `floats` of its dtype."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise fail(
            pl.PalladioTypeError,
            "not an array",
            argument=argument,
            expected=f"an array {meaning}",
            got=type(value).__name__,
        )
    if rank is not None and len(shape) != rank:
        raise fail(
            pl.PalladioValueError, "an array of another rank", argument=argument, expected=meaning, got=tuple(shape)
        )
    if floats:
        float_dtype(dtype, argument)
    pl.refuse_freed(value, argument)
    return tuple(int(extent) for extent in shape)


def grouped_sizes(lhs: Any, rhs: Any, transpose_rhs: bool) -> tuple[int, int, int, int]:
    """The sizes m, k and n of a grouped product, and the number of matrices."""
    m, k = require_array(lhs, "lhs", 2, "[m, k]")
    groups, *matrix = require_array(rhs, "rhs", 3, "[g, n, k]" if transpose_rhs else "[g, k, n]")
    rows, n = reversed(matrix) if transpose_rhs else matrix
    if rows != k:
        raise fail(
            pl.PalladioValueError,
            "does not multiply with lhs",
            argument="rhs",
            expected=f"[g, n, {k}]" if transpose_rhs else f"[g, {k}, n]",
            got=(groups, *matrix),
            hint=f"transpose_rhs={not transpose_rhs} takes matrices in this order" if n == k else None,
        )
    if groups == 0:
        raise fail(pl.PalladioValueError, "at least one matrix is needed", argument="rhs", got=(groups, *matrix))
    return m, k, n, groups


def require_existing(existing_out: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Check that `existing_out`, if given, has the shape and dtype of the result."""
    if existing_out is None:
        return
    found = require_array(existing_out, "existing_out", len(shape), str(shape))
    if found != shape:
        raise fail(
            pl.PalladioValueError, "not the shape of the result", argument="existing_out", expected=shape, got=found
        )
    if dtype_of(existing_out) != dtype:
        raise fail(
            pl.PalladioTypeError,
            "not the dtype of the result",
            argument="existing_out",
            expected=str(dtype),
            got=str(existing_out.dtype),
        )


def _is_integer(value: Any) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_integer(value) and operator.index(value) > 0


def require_count(value: Any, argument: str, most: int | None = None) -> int:
    """Check for a positive integer, up to `most`."""
    if not _is_count(value) or (most is not None and value > most):
        expected = "1 or more" if most is None else f"1 to {most}"
        raise fail(pl.PalladioValueError, "a positive integer", argument=argument, expected=expected, got=repr(value))
    return int(value)


def require_flag(value: Any, argument: str) -> bool:
    """Check for True or False, or a number that stands for one."""
    if type(value) is bool:  # at once: later calls of kept kernels check flags too
        return value
    if not isinstance(value, (int, np.bool_)):
        got = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise fail(pl.PalladioTypeError, "not a truth value", argument=argument, expected="True or False", got=got)
    return bool(value)


def require_number(value: Any, argument: str) -> float:
    """Check for a real number."""
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except pl.PalladioError:  # of a traced value
        raise
    except (TypeError, ValueError):
        raise fail(
            pl.PalladioTypeError, "not a number", argument=argument, expected="a real number", got=repr(value)
        ) from None


def require_interpret(interpret: Any) -> Any:
    """Check the corresponding argument of `pallas_call`."""
    if interpret is not None and not isinstance(interpret, (bool, str)):
        rule = "True, False or the name of an executor"
        raise fail(pl.PalladioTypeError, rule, argument="interpret", got=repr(interpret))
    return interpret


def require_tiling(tiling: Any) -> Tile:
    """Check for three positive integers."""
    if not isinstance(tiling, (tuple, list)) or len(tiling) != 3 or not all(map(_is_count, tiling)):
        raise fail(
            pl.PalladioValueError,
            "a tiling is three positive integers",
            argument="tiling",
            expected="(tm, tk, tn)",
            got=repr(tiling),
        )
    tm, tk, tn = tiling
    return int(tm), int(tk), int(tn)


def one_tiling(tiling: Any, product: int) -> Any:
    """The tiling of a product, if there may be separate ones for the forward product and the two gradients."""
    if isinstance(tiling, (tuple, list)) and len(tiling) == 3 and not any(map(_is_integer, tiling)):
        tiling = tiling[product]
    return tuple(tiling) if isinstance(tiling, list) else tiling


def tile_for(tiling: Any, product: int, m: int, k: int, n: int, choose: LookUp) -> Tile:
    """The tile of a product, limited to the sizes of its problem.

    Args:
        tiling: three positive integers; a look-up function of (m, k, n); or one of these for each of the forward
            product, the left and the right gradient. None to use `choose`.
        product: one of these three, by number.

    Raises:
        PalladioValueError: the tiling is not three positive integers, or the look-up found nothing.
    """
    tiling = one_tiling(tiling, product)
    if tiling is None:
        tiling = choose(max(m, 1), max(k, 1), max(n, 1))
    found = tiling(m, k, n) if callable(tiling) else tiling
    if found is None:
        raise fail(pl.PalladioValueError, f"no tuned tiling found for (m, k, n) = ({m}, {k}, {n})", argument="tiling")
    tm, tk, tn = require_tiling(found)
    return min(tm, max(m, 1)), min(tk, max(k, 1)), min(tn, max(n, 1))


def as_array(value: Any, argument: str, expected: str) -> Array:
    """An array, from one of any library or nested lists; errors name the argument."""
    try:
        return jnp.asarray(value)
    except pl.PalladioError as error:
        rule, details = error.rule, {"got": error.got}
        if not hasattr(value, "dtype") and not isinstance(value, (list, tuple)):
            rule, details = "not an array", {"expected": expected, "got": type(value).__name__}
        raise fail(type(error), rule, argument=argument, **details, hint=error.hint) from None


def _integers(value: Any, argument: str, rank: int, expected: str) -> Array:
    """An array of integers, from an array or nested lists, after a check of its rank."""
    found = as_array(value, argument, expected)
    if not jnp.issubdtype(found.dtype, jnp.integer):
        rule, got = "integers are needed", str(found.dtype)
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=got)
    if found.ndim != rank:
        rule, shape = "an array of another rank", tuple(found.shape)
        raise fail(pl.PalladioValueError, rule, argument=argument, expected=expected, got=shape)
    return found


def _known_sizes(group_sizes: Any, m: int) -> Array | None:
    """Group sizes that pass a quick check, as `i32[groups]`; None for those that need a complete one."""
    if isinstance(group_sizes, list):
        values = group_sizes
        if {*map(type, values)} != {int}:
            return None
    # The complete check refuses a mask. `np.ma` would import its module, which takes 20 ms.
    elif isinstance(group_sizes, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        return None
    elif getattr(group_sizes, "ndim", None) == 1 and not pl.is_traced(group_sizes) and _is_index(group_sizes.dtype):
        try:
            values = group_sizes.tolist()
        except (RuntimeError, TypeError):  # inside a transformation of PyTorch or JAX: the complete check says so
            return None
    else:
        return None
    if not values or min(values) < 0 or sum(values) > m:
        return None
    if type(group_sizes) is np.ndarray and group_sizes.dtype == np.int32:
        return group_sizes
    return np.array(values, np.int32)


@functools.cache
def _is_index(dtype: Any) -> bool:
    return str(dtype).removeprefix("torch.") in ("int32", "int64")


def group_sizes_of(group_sizes: Any, m: int) -> Array:
    """Group sizes as `i32[groups]`; traced values are checked at run time, if debug checks are on."""
    if pl.is_on_gpu(group_sizes):
        return _sizes_on_gpu(group_sizes)
    known = _known_sizes(group_sizes, m)
    if known is not None:
        return known
    sizes = _integers(group_sizes, "group_sizes", 1, "i32[groups]")
    if sizes.shape[0] == 0:
        raise fail(
            pl.PalladioValueError, "at least one group is needed", argument="group_sizes", got=tuple(sizes.shape)
        )
    if pl.is_traced(sizes):
        pl.debug_check(jnp.all(sizes >= 0), "group_sizes: a group size is negative")
        pl.debug_check(jnp.sum(sizes) <= m, "group_sizes: the group sizes sum to more than the number of rows")
    else:
        if sizes.min() < 0:
            raise fail(pl.PalladioValueError, "a group size is negative", argument="group_sizes", got=sizes.tolist())
        total = sum(sizes.tolist())
        if total > m:
            raise fail(
                pl.PalladioValueError,
                "the group sizes sum to more than the number of rows",
                argument="group_sizes",
                expected=f"at most {m}",
                got=total,
            )
    return sizes.astype(jnp.int32)


def require_ids(expert_ids: Any) -> Array:
    """The experts of tokens, `[tokens, k]`, as a NumPy array."""
    is_tensor = type(expert_ids) is getattr(sys.modules.get("torch"), "Tensor", None) and expert_ids.is_cpu
    if is_tensor and expert_ids.ndim == 2 and _is_index(expert_ids.dtype):
        try:
            if expert_ids.data_ptr():  # not so where its memory was freed
                return expert_ids.numpy()  # integers have no gradient, and a plain tensor is not resized
        except RuntimeError:
            pass  # inside a transformation of PyTorch, which is reported below
    return np.asarray(_integers(expert_ids, "expert_ids", 2, "integers [t, k]"))


def _sizes_on_gpu(sizes: Any) -> Any:
    """Group sizes on a GPU, without a check of their values, which would wait for the GPU."""
    dtype, shape = dtype_of(sizes), tuple(sizes.shape)
    if dtype != jnp.int32:
        raise fail(
            pl.PalladioTypeError,
            "group sizes on a GPU are int32",
            argument="group_sizes",
            got=str(dtype),
            hint="group_sizes.int() in PyTorch, group_sizes.astype('int32') elsewhere",
        )
    if len(shape) != 1 or shape[0] == 0:
        rule = "an array of another rank" if len(shape) != 1 else "at least one group is needed"
        raise fail(pl.PalladioValueError, rule, argument="group_sizes", expected="i32[groups]", got=shape)
    return sizes


def group_count(num_actual_groups: int | None, total: int, group_offset: Array | None) -> int:
    """The number of groups to compute, of `total`: the requested number, else all from an offset."""
    if num_actual_groups is not None:
        return require_count(num_actual_groups, "num_actual_groups", most=total)
    if group_offset is None:
        return total
    for unknown, kind in ((pl.is_traced, "a traced"), (pl.is_on_gpu, "a GPU's")):
        if unknown(group_offset):
            raise fail(
                pl.PalladioValueError,
                f"the shape of the result depends on {kind} group_offset",
                argument="num_actual_groups",
                expected="the number of groups to compute",
                got=None,
            )
    return max(1, total - int(group_offset_of(group_offset, 0, total)))


def offset_on_gpu(offset: Any) -> Any:
    """A first group on a GPU, without a check of its value, which would wait for the GPU."""
    dtype, shape = dtype_of(offset), tuple(offset.shape)
    if dtype != jnp.int32 or shape:
        rule = "a first group on a GPU is one number, int32"
        raise fail(pl.PalladioTypeError, rule, argument="group_offset", expected="i32[]", got=f"{dtype}{list(shape)}")
    return offset


def group_offset_of(group_offset: Any, groups: int, total: int) -> Array:
    """The first of `groups` groups among `total`, an `i32[]`; checked unless it is traced."""
    offset = _integers(0 if group_offset is None else group_offset, "group_offset", 0, "i32[]")
    if not pl.is_traced(offset) and not 0 <= int(offset) <= total - groups:
        raise fail(
            pl.PalladioValueError,
            "the groups from here on are not all there",
            argument="group_offset",
            expected=f"0 to {total - groups}" if groups <= total else f"group_sizes of at least {groups} groups",
            got=int(offset),
        )
    return offset.astype(jnp.int32)


@dataclass(frozen=True)
class ExpertShapes:
    """`dtype[tokens, h]` through `each` of `experts` of inner size i.

    Fields:
        biased: for each product, True if a bias is added.
    """

    tokens: int
    each: int
    h: int
    i: int
    experts: int
    dtype: Any
    biased: tuple[bool, bool]

    @property
    def is_empty(self) -> bool:
        """True if the result is empty or zero."""
        return 0 in (self.tokens, self.h, self.i, self.each)


def expert_shapes(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    activation: str,
    biases: tuple[Array | None, Array | None],
    transposed: bool,
) -> ExpertShapes:
    """The sizes of a layer.

    Args:
        those of `palladio.library.moe_mlp`; `biases` are the biases of both products.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not match, or an unknown activation.
    """
    act, transposed = require_activation(activation), require_flag(transposed, "transposed")
    t, h = require_array(tokens, "tokens", 2, "[t, h]")
    experts, *matrix = require_array(gate_up, "gate_up", 3, "[e, 2 i, h]" if transposed else "[e, h, 2 i]")
    wide, summed = matrix if transposed else reversed(matrix)
    if act.gated and wide % 2:
        rule = "a gated activation takes two columns for each of the results"
        raise fail(pl.PalladioValueError, rule, argument="gate_up", expected="an even number of columns", got=wide)
    if experts == 0:
        raise fail(pl.PalladioValueError, "at least one expert is needed", argument="gate_up", got=tuple(gate_up.shape))
    i = wide // 2 if act.gated else wide
    other_order = f"transposed={not transposed} takes weights in the other order" if summed != h == wide else None
    require_shape(gate_up, (experts, wide, h) if transposed else (experts, h, wide), "gate_up", other_order)
    require_shape(down, (experts, h, i) if transposed else (experts, i, h), "down")
    for bias, columns, name in zip(biases, (wide, h), ("gate_up_bias", "down_bias"), strict=True):
        if bias is not None:
            require_shape(bias, (experts, columns), name)
    rows, each = require_array(expert_ids, "expert_ids", 2, "integers [t, k]", floats=False)
    if rows != t:
        rule, wanted = "not the experts of each token", f"[{t}, k]"
        raise fail(pl.PalladioValueError, rule, argument="expert_ids", expected=wanted, got=(rows, each))
    require_shape(expert_weights, (t, each), "expert_weights")
    biased = biases[0] is not None, biases[1] is not None
    return ExpertShapes(t, each, h, i, experts, dtype_of(tokens), biased)


class ExpertGradients(NamedTuple):
    """The gradients of the arguments of `moe_mlp`, each of the shape and dtype of its argument.

    None for an absent bias, and for a gradient that was not requested.
    """

    tokens: Array | None = None
    expert_weights: Array | None = None
    gate_up: Array | None = None
    down: Array | None = None
    gate_up_bias: Array | None = None
    down_bias: Array | None = None


def require_gradient(grad: Array, shape: tuple[int, ...], dtype: Any) -> None:
    """Check the shape and dtype of a result's gradient."""
    require_shape(grad, shape, "grad_out")
    if dtype_of(grad) != dtype:
        rule, got = "not the dtype of the result", str(grad.dtype)
        raise fail(pl.PalladioTypeError, rule, argument="grad_out", expected=str(dtype), got=got)


def require_shape(value: Array, shape: tuple[int, ...], argument: str, hint: str | None = None) -> None:
    """Check the shape of an array of floats."""
    found = require_array(value, argument, len(shape), str(shape))
    if found != shape:
        rule = "does not go with the other arrays"
        raise fail(pl.PalladioValueError, rule, argument=argument, expected=shape, got=found, hint=hint)
