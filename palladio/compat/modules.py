"""The modules of JAX as Palladio provides them, and the object of each name."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio import lax, nn
from palladio.base.errors import PalladioError, PalladioTypeError
from palladio.compat import functions, older, random
from palladio.compat.arrays import Array, enable_x64, returning_arrays
from palladio.compat.missing import Missing
from palladio.compat.shards import AxisType
from palladio.trace.trace import Traced

PACKAGES = ("jax", "jaxlib")

SOURCES: dict[str, str] = {
    "jax": "palladio.compat.functions",
    "jax.experimental.checkify": "palladio.compat.checkify",
    "jax.experimental.pallas": "palladio",
    "jax.experimental.pallas.mosaic_gpu": "palladio.gpu",
    "jax.experimental.pallas.ops.gpu.attention_mgpu": "palladio.library.hopper",
    "jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu": "palladio.library.hopper",
    "jax.experimental.pallas.ops.tpu.megablox": "palladio.library",
    "jax.experimental.pallas.ops.tpu.megablox.gmm": "palladio.library",
    "jax.experimental.pallas.tpu": "palladio.tpu",
    "jax.experimental.pallas.tpu_sc": "palladio.tpu.sparse_core",
    "jax.experimental.pallas.triton": "palladio.gpu",
    "jax.lax": "palladio.lax",
    "jax.nn": "palladio.nn",
    "jax.numpy": "palladio.numpy",
    "jax.random": "palladio.compat.random",
    "jax.ref": "palladio",
    "jax.tree": "palladio.compat.tree",
    "jax.tree_util": "palladio.compat.tree",
}
"""Module of JAX -> the module of Palladio that has its names. Any other module exists, without names."""

OWN: dict[str, Mapping[str, Any]] = {
    "jax._src.dtypes": {"itemsize_bits": functions.itemsize_bits},
    "jax._src.random.prng": {"PRNGImpl": functions.no_effect, "register_prng": functions.no_effect},
    "jax._src.random.threefry2x32": {
        "threefry2x32_p": random.threefry2x32_p,
        "threefry_fold_in": random.fold_in,
        "threefry_seed": random.key,
        "threefry_split": random.split,
    },
    "jax._src.shard_map": {"shard_map": functions.sharded},
    "jax._src.source_info_util": {"register_exclusion": functions.no_effect, "register_inclusion": functions.no_effect},
    "jax._src.lib.cuda_versions": {"cuda_runtime_get_version": functions.cuda_runtime_get_version},
    "jax": {
        "Array": Array,
        "enable_x64": enable_x64,
        "shard_map": functions.sharded,
        "typeof": functions.typeof,
    },
    "jax.ad_checkpoint": {
        "checkpoint": functions.checkpoint,
        "checkpoint_name": lambda x, name: x,
        "remat": functions.checkpoint,
    },
    "jax.checkpoint_policies": {
        "dots_saveable": None,
        "everything_saveable": None,
        "nothing_saveable": None,
        "save_and_offload_only_these_names": functions.no_effect,
        "save_any_names_but_these": functions.no_effect,
        "save_only_these_names": functions.no_effect,
    },
    "jax.core": {"ShapedArray": functions.ShapeDtypeStruct, "Tracer": Traced},
    "jax.debug": {"print": functions.debug_print},
    "jax.dtypes": {
        "bfloat16": np.dtype("bfloat16").type,
        "canonicalize_dtype": functions.canonicalize_dtype,
        "itemsize_bits": functions.itemsize_bits,
    },
    "jax.errors": {
        "ConcretizationTypeError": PalladioTypeError,
        "JaxRuntimeError": PalladioError,
        "TracerArrayConversionError": PalladioTypeError,
        "TracerBoolConversionError": PalladioTypeError,
        "TracerIntegerConversionError": PalladioTypeError,
    },
    "jax.experimental": {"enable_x64": enable_x64},
    "jax.experimental.pallas": {
        "dot": functions.triton_dot,
        "max_contiguous": lambda x, values: x,
        "store": older.store,
        "swap": older.swap,
    },
    "jax.experimental.pallas.mosaic_gpu": {"kernel": functions.kernel_maker(functions.gpu_kernel)},
    "jax.experimental.pallas.triton": {
        "CompilerParams": functions.triton_params,
        "TritonCompilerParams": functions.triton_params,
        "debug_barrier": functions.no_effect,
        "approx_tanh": jnp.tanh,
        "dot": functions.triton_dot,
        "max_contiguous": lambda x, values: x,
    },
    "jax.experimental.mesh_utils": {"create_device_mesh": functions.create_device_mesh},
    "jax.experimental.shard_map": {"shard_map": functions.sharded},
    "jax.extend.backend": {"get_default_device": functions.get_default_device},
    "jax.lax": {
        "pcast": lambda x, axis_name=None, *, to=None: x,
        "pvary": lambda x, axis_name: x,
        "with_sharding_constraint": lambda x, shardings: x,
    },
    "jax.memory": {"Space": functions.Space},
    "jax.numpy": {
        "dtype": np.dtype,
        "ndarray": Array,
        "newaxis": None,
        "unique": returning_arrays(functions.unique),
        "where": returning_arrays(functions.where),
    },
    "jax.numpy.linalg": {"norm": returning_arrays(functions.norm)},
    "jax.scipy.special": {
        name: returning_arrays(function)
        for name, function in (
            ("erf", lax.erf),
            ("erfc", lax.erfc),
            ("erfinv", lax.erf_inv),
            ("expit", lax.logistic),
            ("logsumexp", nn.logsumexp),
        )
    },
    "jax.sharding": {
        "AbstractDevice": functions.AbstractDevice,
        "AbstractMesh": functions.AbstractMesh,
        "AxisType": AxisType,
        "ManualAxisType": functions.ManualAxisType,
        "Mesh": functions.DeviceArrayMesh,
        "NamedSharding": functions.NamedSharding,
        "get_abstract_mesh": functions.get_abstract_mesh,
        "reshard": functions.reshard,
        "set_mesh": functions.set_mesh,
        "use_abstract_mesh": functions.use_abstract_mesh,
        "use_mesh": functions.use_mesh,
    },
    "jax.typing": {"ArrayLike": Any, "DTypeLike": Any},
}
"""Names that no module of Palladio has."""

ELSEWHERE: dict[str, tuple[str, str]] = {
    "jax._src.pallas.mosaic_gpu.interpret.params.InterpretGPUParams": ("palladio.gpu", "InterpretGPUParams"),
    "jax._src.state.discharge.run_state": ("palladio", "run_state"),
    "jax.P": ("palladio", "PartitionSpec"),
    "jax.custom_jvp": ("palladio.compat.gradients", "custom_jvp"),
    "jax.custom_vjp": ("palladio.compat.gradients", "custom_vjp"),
    "jax.dtypes.float0": ("palladio.compat.gradients", "float0"),
    "jax.ds": ("palladio", "ds"),
    "jax.empty_ref": ("palladio", "empty_ref"),
    "jax.eval_shape": ("palladio", "eval_shape"),
    **{
        f"jax.experimental.pallas.{name}": ("palladio.gpu", name)
        for name in ("load", *(f"atomic_{kind}" for kind in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")))
    },
    "jax.experimental.pallas.mosaic_gpu.GPUCompilerParams": ("palladio.gpu", "CompilerParams"),
    "jax.experimental.pallas.tpu.TPUCompilerParams": ("palladio.tpu", "CompilerParams"),
    "jax.experimental.pallas.tpu.TPUMemorySpace": ("palladio.tpu", "MemorySpace"),
    "jax.freeze": ("palladio", "freeze"),
    "jax.grad": ("palladio.compat.gradients", "grad"),
    "jax.jvp": ("palladio.compat.gradients", "jvp"),
    "jax.lax.empty": ("palladio.numpy", "empty"),
    "jax.lax.stop_gradient": ("palladio.compat.gradients", "stop_gradient"),
    "jax.make_mesh": ("palladio", "make_mesh"),
    "jax.new_ref": ("palladio", "new_ref"),
    "jax.sharding.PartitionSpec": ("palladio", "PartitionSpec"),
    "jax.value_and_grad": ("palladio.compat.gradients", "value_and_grad"),
    "jax.vjp": ("palladio.compat.gradients", "vjp"),
    "jax.vmap": ("palladio.compat.gradients", "vmap"),
}
"""Names that another module of Palladio has."""

_PRIMITIVES = {"and_p": "bitwise_and", "not_p": "bitwise_not", "or_p": "bitwise_or", "xor_p": "bitwise_xor"}
"""Operations whose functions have other names than they."""

_REDUCTIONS = {
    "add": "reduce_sum",
    "bitwise_and": "reduce_and",
    "bitwise_or": "reduce_or",
    "bitwise_xor": "reduce_xor",
    "logical_and": "reduce_and",
    "logical_or": "reduce_or",
    "maximum": "reduce_max",
    "minimum": "reduce_min",
    "multiply": "reduce_prod",
}
"""Functions of two operands, and those of `lax` that reduce axes with them."""

_MAKERS = ("core_map", "kernel", "mpmd_map", "pallas_call")
_COMPUTING = ("jax.lax", "jax.nn", "jax.numpy", "jax.random")


def answer(module: str, name: str) -> Any:
    """The object for `module.name` of JAX: one of Palladio, a module, or a `Missing`."""
    if name in OWN.get(module, {}):
        return OWN[module][name]
    path, attribute = ELSEWHERE.get(f"{module}.{name}", (SOURCES.get(module), name))
    found = _offered(path, attribute) if path else None
    if found is not None:
        return _adapted(module, name, found)
    if module == "jax.lax" and name.endswith("_p"):
        operation = _PRIMITIVES.get(name, name.removesuffix("_p"))
        if (found := _offered("palladio.lax", operation)) is not None:
            return functions.Primitive(name.removesuffix("_p"), _adapted(module, operation, found))
    if any(f"{each}.".startswith(f"{module}.{name}.") for each in (*SOURCES, *OWN, *ELSEWHERE)):
        return stand_in(f"{module}.{name}")
    return Missing(f"{module}.{name}")


def _offered(path: str, name: str) -> Any:
    """A public name of a module of Palladio, or None."""
    home = importlib.import_module(path)
    if not path.startswith("palladio.compat"):
        return getattr(home, name) if name in home.__all__ else None
    found = getattr(home, name, None)
    return None if isinstance(found, ModuleType) else found  # a module that this one imports


def _adapted(module: str, name: str, found: Any) -> Any:
    """A function of Palladio as JAX's callers use it."""
    if name in _MAKERS:
        return functions.kernel_maker(found)
    if module in _COMPUTING and callable(found) and not isinstance(found, type) and hasattr(found, "__code__"):
        function = _placed_anywhere(returning_arrays(found))
        if module == "jax.numpy" and name in _REDUCTIONS:
            reduce = answer("jax.lax", _REDUCTIONS[name])
            function.reduce = lambda a, axis=0: reduce(a, (axis,) if isinstance(axis, int) else axis)
        return function
    return found


def _placed_anywhere(function: Any) -> Any:
    """An array function that also takes the device or the partition of its result, which has no effect here."""

    @functools.wraps(function)
    def call(*args: Any, device: Any = None, out_sharding: Any = None, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class StandIn(ModuleType):
    """A module of JAX whose names are looked up when they are used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = answer(self.__name__, name)
        setattr(self, name, value)
        return value


@functools.cache
def stand_in(name: str) -> StandIn:
    """The module of this name, one per process; it still works after imports of JAX give JAX again."""
    return StandIn(name, f"`{name}` as Palladio answers it.")


_LIBRARY = ("jax", "experimental", "pallas", "ops")


def library_file(name: str) -> Path | None:
    """The file of a module of JAX's kernel library, if it is on disk.

    It is taken from the script's folder and its parents, if named as the module or as a package around it, else from
    an installed JAX.
    """
    parts = tuple(name.split("."))
    if parts[: len(_LIBRARY)] != _LIBRARY:
        return None
    here = Path(sys.path[0]).resolve() if sys.path else Path.cwd()
    around = [each for each in (here, *here.parents) if each.name in parts[len(_LIBRARY) - 1 :]]
    places = [each.joinpath(*parts[parts.index(each.name) + 1 :]) for each in around]
    places += [Path(root).joinpath(*parts) for root in sys.path]
    for place in places:
        for found in (place / "__init__.py", place.with_suffix(".py")):
            if found.is_file():
                return found
    return None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves imports of `jax` and of every module inside it. JAX's kernel library runs from its own files."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module, if it is one of JAX."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        if (file := library_file(fullname)) is not None:
            inside = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=inside)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A module without names yet."""
        return stand_in(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are used."""


def swapped_out() -> dict[str, ModuleType]:
    """Remove the modules of JAX from the loaded modules."""
    names = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    return {name: sys.modules.pop(name) for name in names}
