"""The functions of `jax` itself: staging, devices, configuration, and functions without effect here."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError, at_call
from palladio.base.knobs import host_devices
from palladio.call.devices.shard_map import DeviceMesh, PartitionSpec, make_mesh, shard_map
from palladio.call.jit import jit as staged
from palladio.call.jit import static_positions, traced_program
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.pallas_call import PallasCall
from palladio.call.tpu.info import described
from palladio.compat import tree
from palladio.compat.arrays import Array, arrays, is_wide, narrow_dtype, plain, returning_arrays, set_wide, taken
from palladio.ir.core import Program
from palladio.ir.text import print_program
from palladio.trace.debug import debug_print as print_values
from palladio.trace.grid import program_id
from palladio.trace.trace import current_trace, is_traced
from palladio.types import dtypes, types
from palladio.types.device import H100_SXM
from palladio.types.dtypes import bits_of
from palladio.types.scratch import SemaphoreType
from palladio.types.types import COUNTING, DMA_SEMAPHORE

__version__ = "0.12.0"
__version_info__ = (0, 12, 0)


class ShapeDtypeStruct(types.ShapeDtypeStruct):
    """A shape and a dtype, with 32 bits if 64-bit dtypes are off."""

    def __init__(self, shape: Any, dtype: Any, **options: Any) -> None:
        super().__init__(shape, narrow_dtype(dtype), **options)


class Space(Enum):
    """`jax.memory.Space`: the memory of the device, in which all arrays are, and that of its host."""

    Device = "device"
    Host = "host"
    Any = "any"


@dataclass(frozen=True)
class ManualAxisType:
    """`jax.sharding.ManualAxisType`: the mesh axes along which a value varies. No result depends on it."""

    varying: Any = frozenset()
    unreduced: Any = frozenset()
    reduced: Any = frozenset()


class Described(ShapeDtypeStruct):
    """What `jax.typeof` says of an array or a reference.

    Fields:
        memory_space: that of a reference; of an array, `Space.Device`.
        sharding: the partition that `reshard` gave an array, over the mesh of `set_mesh`.
        vma, manual_axis_type: the axes of devices along which it varies, which are not followed here.
    """

    memory_space: Any
    sharding: Any
    vma: frozenset[str] = frozenset()
    manual_axis_type = ManualAxisType()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, types.ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    __hash__ = ShapeDtypeStruct.__hash__

    @property
    def inner_aval(self) -> ShapeDtypeStruct:
        """The type of the array that a reference refers to."""
        return ShapeDtypeStruct(self.shape, self.dtype)


def typeof(value: Any) -> Described:
    """The shape and the dtype of an array or a reference, with its memory space or its partition.

    Raises:
        PalladioTypeError: a value without a shape or a dtype.
    """
    with at_call():
        if not hasattr(value, "dtype") and isinstance(value, (bool, int, float)):
            value = arrays(np.asarray(value))
        found = Described.like(value)
        spec = getattr(value, "palladio_spec", PartitionSpec(*[None] * len(found.shape)))
        object.__setattr__(found, "memory_space", getattr(value, "memory_space", Space.Device))
        object.__setattr__(found, "sharding", NamedSharding(_Current.mesh, spec))
        return found  # type: ignore[return-value]


def kernel_maker(maker: Callable[..., Any]) -> Callable[..., Any]:
    """`pallas_call`, `shard_map` and their kin: the functions that they make take and return arrays of JAX.

    They may also be decorators with arguments, which take a function and return one.
    """

    @functools.wraps(maker)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = maker(*tree.map(taken, args), **tree.map(taken, kwargs))
        if isinstance(made, (PallasCall, LaunchCall)):
            call = returning_arrays(made)
            call.lower = lambda *args, **kwargs: jit(call).lower(*args, **kwargs)  # type: ignore[attr-defined]
            return call
        return kernel_maker(made) if callable(made) else arrays(made)

    return make


@functools.wraps(plgpu.kernel)
def gpu_kernel(body: Callable[..., None] | None = None, out_type: Any = (), **options: Any) -> Any:
    """`kernel` of Pallas' GPU namespace, where each block has semaphores of its own in `scratch_types`."""
    if body is None:
        return functools.partial(gpu_kernel, out_type=out_type, **options)
    spelling = "scratch_types" if options.get("scratch_shapes") is None else "scratch_shapes"
    scratch = options.get(spelling, ())
    axes = [options.get(name, ()) for name in ("grid", "cluster")]
    sizes = [size for axis in axes for size in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if not all(isinstance(size, int) for size in sizes) or math.prod(sizes) == 1:
        return plgpu.kernel(body, out_type, **options)
    function: Callable[..., None] = body

    @functools.wraps(function)
    def of_block(*refs: Any, **named: Any) -> None:
        part = functools.partial(_part_of_block, tuple(map(program_id, range(len(sizes)))))
        if isinstance(scratch, Mapping):
            function(*refs, **tree.map(part, dict(scratch), named))
            return
        kinds = list(scratch) if isinstance(scratch, (tuple, list)) else [scratch]
        first = len(refs) - len(kinds)
        function(*refs[:first], *tree.map(part, kinds, list(refs[first:])))

    options[spelling] = tree.map(functools.partial(_for_each_block, sizes), scratch)
    return plgpu.kernel(of_block, out_type, **options)


def _counts(what: Any) -> bool:
    """True for a description of semaphores."""
    return getattr(getattr(what, "ref_type", None), "space", None) in COUNTING


def _for_each_block(sizes: Sequence[int], what: Any) -> Any:
    """A description of scratch; of semaphores, those of all blocks."""
    if not _counts(what):
        return what
    kind = SemaphoreType.DMA if what.ref_type.space is DMA_SEMAPHORE else SemaphoreType.REGULAR
    return kind((*sizes, *what.ref_type.shape))


def _part_of_block(place: tuple[Any, ...], what: Any, ref: Any) -> Any:
    """A reference to scratch; of semaphores, those of the block at this place."""
    return ref.at[place] if _counts(what) else ref


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    **hints: Any,
) -> Any:
    """`palladio.jit`. Hints for JAX's compiler (`donate_argnums`, `inline`, …) have no effect.

    Raises:
        PalladioNotImplementedError: shardings over several devices.
    """
    if fun is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            **hints,
        )
    with at_call():
        for name, value in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            if not _on_one_device(value):
                raise PalladioNotImplementedError(
                    "a staged function runs on one device", argument=name, got=repr(value)
                )
    if (within := getattr(fun, "within", None)) is not None:
        # Under checkify a failed check raises, so the function under it is staged, not the checked one.
        return within(functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames, **hints))
    if getattr(fun, "takes_spread", False):
        return fun  # the partition of its arrays is not part of a staged program
    names = () if static_argnames is None else static_argnames
    function = staged(fun, static_argnums=static_argnums or (), static_argnames=names)
    result = getattr(fun, "spread", lambda call: call)(returning_arrays(function))
    result.trace = result.lower = functools.partial(Lowered, function, result)  # type: ignore[attr-defined]
    result.eval_shape = returning_arrays(function.eval_shape)  # type: ignore[attr-defined]
    return result


def _on_one_device(shardings: Any) -> bool:
    """True if every sharding of a tree is one over a single device, or None."""
    meshes = [getattr(leaf, "mesh", None) for leaf in tree.leaves(shardings) if leaf is not None]
    return all(getattr(mesh, "size", 0) == 1 for mesh in meshes)


class Lowered:
    """A staged function, traced for arguments: errors that need no values are found here.

    It takes the place of JAX's `Traced`, `Lowered` and `Compiled`. A kernel is compiled when it first runs.
    """

    def __init__(self, function: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.call = call
        args, kwargs = tree.map(taken, (args, kwargs))
        self.out_info = function.eval_shape(*args, **kwargs)
        self.trace_again = lambda: make_jaxpr(function)(*args, **kwargs)

    @property
    def jaxpr(self) -> Any:
        """The traced program, as `jax.make_jaxpr` gives it."""
        return self.trace_again()

    def lower(self, **options: Any) -> Lowered:
        """Itself: there is no further form of the function."""
        return self

    def compile(self, compiler_options: Any = None, **options: Any) -> Lowered:
        """Itself. Options of XLA have no effect."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


@dataclass(frozen=True)
class Device:
    """A device: kernels of every machine run on this computer, with the blocks of an H100."""

    id: int = 0
    process_index: int = 0
    platform: str = "cpu"
    device_kind: str = "cpu"
    core_count: int = H100_SXM.multiprocessors
    num_cores: int = 1

    @property
    def local_hardware_id(self) -> int:
        """The number of the device."""
        return self.id

    def memory_stats(self) -> None:
        """Return None: no statistics are kept."""


class Config:
    """`jax.config`: `jax_enable_x64` and `jax_num_cpu_devices` take effect; other settings are only stored."""

    def __init__(self) -> None:
        self.__dict__["values"] = {}

    def update(self, name: str, value: Any) -> None:
        """Change a setting."""
        if name == "jax_enable_x64":
            set_wide(value)
        self.values[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("jax_enable_x64", "x64_enabled"):
            return is_wide()
        return self.values.get(name)

    def parse_flags_with_absl(self) -> None:
        """Do nothing: there are no flags."""


config = Config()


@contextlib.contextmanager
def threefry_partitionable(new_val: bool = True) -> Iterator[None]:
    """The form of JAX's default generator: True, the default, is the only one here.

    Raises:
        PalladioNotImplementedError: False, the form of JAX before 0.5.
    """
    with at_call():
        if not new_val:
            raise PalladioNotImplementedError(
                "the random generator has one form", argument="new_val", expected="True", got=repr(new_val)
            )
    yield


def devices(backend: str | None = None) -> list[Device]:
    """The simulated devices: one, or `n` after `jax.config.update("jax_num_cpu_devices", n)` or with
    `XLA_FLAGS=--xla_force_host_platform_device_count=n`.

    Inside `pltpu.described_tpu` they are TPUs of that description.
    """
    tpu = described()
    known: dict[str, Any] = {}
    if tpu is not None:
        kind = getattr(tpu.chip_version, "device_kind", f"TPU {tpu.chip_version}")
        known = {"platform": "tpu", "device_kind": kind, "num_cores": tpu.num_cores}
    return [Device(id=number, **known) for number in range(config.jax_num_cpu_devices or host_devices())]


local_devices = devices


def device_count(backend: str | None = None) -> int:
    """The number of devices."""
    return len(devices())


local_device_count = device_count


def process_count() -> int:
    """One: all devices are simulated in this process."""
    return 1


def process_index(backend: str | None = None) -> int:
    """Zero: all devices are simulated in this process."""
    return 0


def default_backend() -> str:
    """The platform of the devices."""
    return devices()[0].platform


def block_until_ready(values: Any) -> Any:
    """The values themselves: nothing is in flight."""
    return values


@dataclass(frozen=True)
class NamedSharding:
    """The partition of an array over a mesh. Arrays outside of `shard_map` are whole, so it decides nothing."""

    mesh: Any
    spec: Any
    memory_kind: str | None = None


class DeviceArrayMesh(DeviceMesh):
    """A mesh of an array of devices, each array axis with a name."""

    def __init__(self, devices: Any, axis_names: Any, **hints: Any) -> None:
        made = make_mesh(np.shape(devices), axis_names)
        super().__init__(made.axis_names, made.axis_sizes)


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, **hints: Any) -> Any:
    """Devices as an array of this shape, for `jax.sharding.Mesh`; all are equally far from each other.

    Raises:
        PalladioValueError: another number of devices than the mesh has.
    """
    listed = list(local_devices() if devices is None else devices)
    with at_call():
        if math.prod(mesh_shape) != len(listed):
            raise PalladioValueError(
                "the mesh has a place for each device",
                argument="mesh_shape",
                expected=f"{len(listed)} places",
                got=tuple(mesh_shape),
                jax="must equal the product of mesh_shape",
            )
    return np.array(listed, object).reshape(mesh_shape)


class _Current:
    """The mesh of `jax.set_mesh`, and that of `jax.sharding.use_abstract_mesh`."""

    mesh: DeviceMesh | None = None
    abstract: AbstractMesh | None = None


class set_mesh(contextlib.AbstractContextManager[Any]):
    """Make a mesh the default of `shard_map`, from here on or within a `with` block."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.before, _Current.mesh = _Current.mesh, mesh

    def __enter__(self) -> DeviceMesh | None:
        return _Current.mesh

    def __exit__(self, *error: Any) -> None:
        _Current.mesh = self.before


use_mesh = set_mesh


@functools.wraps(shard_map)
def sharded(f: Callable[..., Any] | None = None, *, mesh: Any = None, **options: Any) -> Any:
    """`palladio.shard_map`, on the mesh of `set_mesh` and with the specs of `reshard` where none are given."""
    if f is None:
        return functools.partial(sharded, mesh=mesh, **options)
    mesh = mesh if mesh is not None else _Current.mesh
    if mesh is not None:
        return _sharded_on(mesh, f, options)

    @functools.wraps(f)
    def on_the_mesh_of_the_call(*args: Any) -> Any:
        return _sharded_on(_Current.mesh, f, options)(*args)

    return on_the_mesh_of_the_call


def _sharded_on(mesh: Any, f: Callable[..., Any], options: dict[str, Any]) -> Any:
    """`sharded` on a mesh."""
    if isinstance(mesh, AbstractMesh):
        mesh = make_mesh(mesh.axis_sizes, mesh.axis_names)
    known = {name: value for name, value in options.items() if name in ("in_specs", "out_specs", "interpret")}
    if "in_specs" in known:
        spread = functools.partial(_spreading, mesh, known.get("out_specs"))
        placed = spread(returning_arrays(shard_map(f, mesh=mesh, **known)))
        placed.spread = spread
        return placed

    made = returning_arrays(lambda in_specs, *args: shard_map(f, mesh=mesh, in_specs=in_specs, **known)(*args))

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        return _spread(made(tree.map(_spec_of, args), *args), known.get("out_specs"))

    call.takes_spread = True  # type: ignore[attr-defined]
    return call


def _spreading(mesh: Any, specs: Any, function: Callable[..., Any]) -> Any:
    """A function whose results carry their mesh and their partition over it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values = function(*args, **kwargs)
        pairs = zip(values, specs, strict=False) if type(specs) in (tuple, list) else [(values, specs)]
        for value, spec in pairs:
            for leaf in tree.leaves(value) if isinstance(spec, PartitionSpec) else ():
                if type(leaf) is Array:
                    leaf.palladio_shards = (mesh, spec)  # type: ignore[attr-defined]
        return values

    return call


def _spec_of(leaf: Any) -> PartitionSpec:
    """The partition that `reshard` gave an array.

    Raises:
        PalladioNotImplementedError: for a traced value.
    """
    if is_traced(leaf):
        raise PalladioNotImplementedError(
            "under jit the partition of an array is not known", argument="in_specs", hint="give in_specs to shard_map"
        )
    return getattr(leaf, "palladio_spec", PartitionSpec())


def _spread(values: Any, spec: Any) -> Any:
    """The arrays, each marked with the partition by which `shard_map` is to split it."""
    for leaf in tree.leaves(values):
        if isinstance(spec, PartitionSpec) and isinstance(leaf, Array):
            leaf.palladio_spec = spec  # type: ignore[attr-defined]
    return values


def device_put(values: Any, device: Any = None, **hints: Any) -> Any:
    """The values as arrays of JAX."""
    return arrays(tree.map(taken, values))


def reshard(values: Any, sharding: Any) -> Any:
    """The values as arrays of JAX: arrays outside of `shard_map` are whole, but it splits them by this partition."""
    return _spread(device_put(values), getattr(sharding, "spec", sharding))


def device_get(values: Any) -> Any:
    """The values as NumPy arrays."""
    return tree.map(plain, values)


class _NoEffect(contextlib.ContextDecorator):
    """A context, or a decorator of functions, that changes nothing. Reports name lines of the kernel, not scopes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


named_scope = disable_jit = ensure_compile_time_eval = default_matmul_precision = numpy_dtype_promotion = _NoEffect
legacy_prng_key = default_device = _NoEffect


def same(fun: Callable[..., Any] | None = None, **hints: Any) -> Any:
    """The function itself: the decorator has no effect here."""
    return fun if fun is not None else functools.partial(same, **hints)


checkpoint = remat = named_call = same


def canonicalize_dtype(dtype: Any, *_: Any, **__: Any) -> Any:
    """A dtype with 32 bits instead of 64, if 64-bit dtypes are off."""
    return np.dtype(narrow_dtype(dtype))


def get_default_device() -> Device:
    """The first device."""
    return devices()[0]


@dataclass(frozen=True)
class AbstractDevice:
    """A device that a program is written for, by its name."""

    device_kind: str
    num_cores: int | None = None
    platform: str | None = None


@dataclass(frozen=True)
class AbstractMesh:
    """The axes of a mesh without its devices."""

    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]
    axis_types: Any = None
    abstract_device: AbstractDevice | None = None

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis by name."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def empty(self) -> bool:
        """True for a mesh without axes."""
        return not self.axis_names


@contextlib.contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Iterator[AbstractMesh]:
    """Make a mesh that of `get_abstract_mesh`: a kernel may read from it the device that it is written for."""
    before, _Current.abstract = _Current.abstract, mesh
    try:
        yield mesh
    finally:
        _Current.abstract = before


def get_abstract_mesh() -> AbstractMesh:
    """The mesh of `use_abstract_mesh`; one without axes and device by default."""
    return _Current.abstract or AbstractMesh((), ())


def norm(x: Any, ord: int | None = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`jnp.linalg.norm` of vectors: the root of the sum of squares along an axis, by default along all.

    Raises:
        PalladioNotImplementedError: for another order than 2.
    """
    if ord not in (None, 2):
        with at_call():
            raise PalladioNotImplementedError("norms are Euclidean here", argument="ord", got=ord)
    return jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims))


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """`jnp.where`; of a condition alone, known outside of a trace, the positions along each axis where it is true."""
    if x is None and y is None and current_trace() is None:
        return tuple(map(taken, np.nonzero(condition)))
    return jnp.where(condition, x, y)


def unique(ar: Any, *args: Any, size: int | None = None, **options: Any) -> Any:
    """`jnp.unique` of an array that is known: its sorted values, each once, and what `return_counts` and its kin add.

    Raises:
        PalladioNotImplementedError: in a trace, which cannot know how many there are; with `size`.
    """
    with at_call():
        if is_traced(ar):
            raise PalladioNotImplementedError(
                "the number of unique values is known outside of traces only", argument="ar", got="a traced value"
            )
        if size is not None:
            raise PalladioNotImplementedError(
                "unique values are not padded", argument="size", expected="None", got=size
            )
    found = np.unique(plain(np.asarray(ar)), *args, **options)
    return tuple(map(taken, found)) if isinstance(found, tuple) else found


def itemsize_bits(dtype: Any) -> int:
    """The bits that an element uses, without the padding of its byte."""
    return bits_of(np.dtype(dtype))


def debug_print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """`palladio.debug_print` with values by name too: `"x is {x}", x=x`."""
    given = iter(args)
    pieces, values = [], []
    for text, field, spec, _ in string.Formatter().parse(fmt):
        pieces.append(text.replace("{", "{{").replace("}", "}}"))
        if field is not None:
            pieces.append(f"{{:{spec}}}" if spec else "{}")
            values += [kwargs[field]] if field in kwargs else itertools.islice(given, 1)
    print_values("".join(pieces), *values, *given)


@dataclass(frozen=True)
class Primitive:
    """`jax.lax.exp_p`: an operation of `jax.lax` as an object, which `bind` applies."""

    name: str
    apply: Callable[..., Any]

    def bind(self, *operands: Any, accuracy: Any = None, **params: Any) -> Any:
        """The result for some operands. Accuracies have no effect here."""
        return self.apply(*operands, **params)


def no_effect(*_: Any, **__: Any) -> None:
    """Do nothing, in place of a function that only another compiler or runtime needs."""


effects_barrier = clear_caches = no_effect


class _TracedFunction:
    """A traced function, which prints as its program. JAX's equations and effects are not among its attributes."""

    def __init__(self, program: Program, out_tree: Any) -> None:
        self.program, self.out_tree = program, out_tree

    def __repr__(self) -> str:
        return print_program(self.program)


@checked_call
def make_jaxpr(
    fun: Callable[..., Any], static_argnums: int | Sequence[int] = (), *, return_shape: bool = False
) -> Callable[..., Any]:
    """A function that traces `fun` for arrays or `ShapeDtypeStruct`.

    Args:
        static_argnums: the positions of arguments that `fun` gets as they are.
        return_shape: whether to return also the shapes and dtypes of the result, in its structure.
    """
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fun)
    def trace(*args: Any, **kwargs: Any) -> Any:
        with at_call():
            static = static_positions(fun, numbers)

            @functools.wraps(fun)
            def function(*traced: Any, **keywords: Any) -> Any:
                rest = iter(traced)
                return fun(*(arg if n in static else next(rest) for n, arg in enumerate(args)), **keywords)

            given = tuple(arg for n, arg in enumerate(args) if n not in static)
            program, out_tree = traced_program(function, *tree.map(taken, (given, kwargs)))
        found = _TracedFunction(program, out_tree)
        shapes = [ShapeDtypeStruct(each.shape, each.dtype) for each in program.output_types]
        return (found, tree.unflatten(out_tree, shapes)) if return_shape else found

    return trace


def cuda_runtime_get_version() -> int:
    """CUDA 13.0: a release without the faults for which some kernels refuse an older one."""
    return 13000


def triton_dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: Any = None, precision: Any = None
) -> Any:
    """`dot` of Pallas: a product in int32, float32 or float64. Precisions have no effect here."""
    a, b = a.T if trans_a else a, b.T if trans_b else b
    wanted = jnp.int32 if dtypes.is_integer(a.dtype) and dtypes.is_integer(b.dtype) else jnp.float32
    wanted = jnp.float64 if jnp.float64 in (a.dtype, b.dtype) else wanted
    return jnp.matmul(a, b, preferred_element_type=wanted)


def triton_params(num_warps: int | None = None, num_stages: int | None = None) -> Any:
    """`CompilerParams` of Pallas' Triton namespace: advice to that compiler, without effect here."""
    return plgpu.CompilerParams()
