"""Arrays in the memory of a GPU: PyTorch, CuPy and JAX arrays, and objects with `__cuda_array_interface__` or DLPack.

Only modules that the caller has imported are used, and no driver is needed to tell them apart. Each library also
determines where results go: its allocator, its current stream.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from palladio.array.foreign import all_to_numpy, from_numpy, to_numpy
from palladio.array.tensors import has_tangent, is_freed, may_have_tangents, require_memory
from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.types import dtypes
from palladio.types.types import Shape
from palladio.types.views import row_major

ALIGNMENT = 16
"""Bytes that the address of an array is a multiple of, as vector accesses and tensor maps need it."""

Facts = tuple[list[Any], tuple[int, ...]]
"""A GPU, dtypes and layouts, which tell calls apart, and addresses, which do not."""

LEGACY_STREAM = 0
_LAZY = 2
"""Tensors of fewer elements may be contiguous although they are lazily negated, as parts of complex ones are."""
_CUDA = 2
"""`kDLCUDA` of DLPack."""
_EXCHANGE_MAJOR = 1
"""The version of DLPack whose functions of C are called."""


class Strided(NamedTuple):
    """The layout of an array that is not in row-major order; strides are in elements."""

    shape: Shape
    strides: Shape


Layout = Shape | Strided
"""The shape of an array in row-major order, or the shape and strides of another one."""


def strided(layout: Layout) -> Strided:
    """The shape and strides of a layout."""
    return layout if isinstance(layout, Strided) else Strided(tuple(layout), row_major(tuple(layout)))


@dataclass(frozen=True)
class CardArray:
    """An array in a GPU's memory, row-major and dense.

    Fields:
        address: of its first element; 0 for one without elements.
        shape, dtype: of it.
        device: the number of the GPU.
        library: what it came from.
        source: the caller's array, which keeps the memory.
    """

    address: int
    shape: Shape
    dtype: dtypes.DType
    device: int
    library: Library
    source: Any

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count

    def overlaps(self, other: CardArray) -> bool:
        """True if the two have memory in common."""
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes


@dataclass(frozen=True)
class Conditions:
    """A state of the process, which machine code compares with the present one.

    Fields:
        absent: mappings, or views of their items, and what must not be in them.
        chosen: context variables, and the objects that must be their values.
    """

    absent: tuple[tuple[Any, Any], ...] = ()
    chosen: tuple[tuple[ContextVar[Any], Any], ...] = ()

    def __add__(self, other: Conditions) -> Conditions:
        return Conditions(self.absent + other.absent, self.chosen + other.chosen)

    @property
    def readers(self) -> list[Callable[[], Any]]:
        """Functions that read the state: it is the same as before if their results are."""
        texts = [functools.partial(mapping.get, key) for mapping, key in self.absent]
        return [*texts, *(variable.get for variable, _ in self.chosen)]


@dataclass(frozen=True)
class Allocator:
    """The functions of C by which PyTorch's own allocator makes a tensor (`torch/csrc/inductor/aoti_torch/c/shim.h`).

    Fields:
        empty: the address of `aoti_torch_empty_strided`, which dispatches as `torch.empty_strided` does.
        address: of `aoti_torch_get_data_ptr`.
        delete: of `aoti_torch_delete_tensor_object`.
        wrap: of `THPVariable_Wrap`, which makes the object of Python (`torch/csrc/autograd/python_variable.h`).
        dtypes: PyTorch's number of each dtype, by its name.
        device_type: PyTorch's number of the type of a GPU.
    """

    empty: int
    address: int
    delete: int
    wrap: int
    dtypes: Mapping[str, int]
    device_type: int


@dataclass(frozen=True)
class Exchange:
    """The functions of C by which a library reads arrays, `DLPackExchangeAPI` of DLPack 1.3, and one that makes them.

    Fields:
        read: the address of `dltensor_from_py_object_no_sync`.
        stream: of `current_work_stream`.
        device_type: `DLDeviceType` of a GPU.
        types: the types of arrays that have no behaviour of their own.
        grad_enabled: True, when called, if operations on tensors with `requires_grad` are recorded.
        usual: the state of the process in which no operation computes tangents.
        new: of a layout, one of the library's dtypes and a device, the function that makes a new array of these.
            PyTorch takes one by `managed_tensor_allocator` for foreign memory: it ignores `record_stream` of it, and
            does not resize it.
        allocator: makes the same arrays in a third of the time; None for a version of the library without it.
    """

    read: int
    stream: int
    device_type: int
    types: tuple[type, type]
    grad_enabled: Callable[[], bool]
    usual: Conditions
    new: Callable[[Layout, Any, int], Callable[[], Any]]
    allocator: Allocator | None = None


@dataclass(frozen=True)
class Library:
    """The functions that a library of arrays provides.

    Fields:
        name: the module.
        device: the GPU that an array lives on; None for one in host memory.
        view: an array of this library as a `CardArray`, a copy where it is not dense or not aligned.
        empty: a new array of a shape and dtype on a device.
        upload: a NumPy array on a device.
        stream: the stream that the caller works on, on a device.
        synchronous: whether the library orders nothing on that stream, so that a call waits for its end.
        facts: the facts of aligned arrays, all of them on one GPU: its number, then the dtype and the layout of each as
            the library has them; and their addresses. None for other arrays; it is None itself where every call takes
            the long way.
        maker: of a layout, one of the library's dtypes and a device, the function that makes a new array of these, and
            gives it, as the library's own, with its address.
        native: the library's dtype that is one of ours.
        exchange: its functions of C; None for a library, or a version of it, without them.
    """

    name: str
    device: Callable[[Any], int | None]
    view: Callable[[Any, str], CardArray]
    empty: Callable[[Shape, dtypes.DType, int], CardArray]
    upload: Callable[[Any, int], CardArray]
    stream: Callable[[int], int]
    synchronous: bool = False
    facts: Callable[[Sequence[Any]], Facts | None] | None = None
    maker: Callable[[Layout, Any, int], Callable[[], tuple[Any, int]]] | None = None
    native: Callable[[dtypes.DType], Any] = lambda dtype: dtype
    exchange: Callable[[], Exchange | None] = lambda: None

    def __hash__(self) -> int:
        return id(self)


def card_of(values: Sequence[Any]) -> tuple[Library, int] | None:
    """The library and the GPU of the first value that is an array on a GPU; None without one."""
    for value in values:
        library = library_of(type(value))
        if library is not None:
            device = library.device(value)
            if device is not None:
                return library, device
    return None


@functools.lru_cache(1024)
def library_of(kind: type) -> Library | None:
    """The library of arrays of a type; None for those that are never on a GPU."""
    for base in kind.__mro__:
        found = LIBRARIES.get(base.__module__.partition(".")[0])
        if found is not None:
            return found
    if issubclass(kind, (np.ndarray, np.generic, bool, int, float)):
        return None
    if hasattr(kind, "__cuda_array_interface__"):
        return INTERFACE
    return EXCHANGED if hasattr(kind, "__dlpack_device__") else None


def is_on_gpu(array: Any) -> bool:
    """True if an array lives in the memory of a GPU, and so is computed there."""
    return type(array) is not np.ndarray and card_of((array,)) is not None


def to_device_of(values: Any, array: Any) -> Any:
    """Values of the host, as an array of the library and on the GPU of another one; as they are if that is on none.

    Args:
        values: a NumPy array.
        array: an array of any library.
    """
    home = card_of((array,))
    if home is None or is_on_gpu(values):
        return values
    return home[0].upload(np.ascontiguousarray(values), home[1]).source


def all_on_card(leaves: Sequence[Any], tree: Any, root: str) -> list[Any]:
    """The leaves of a tree of arguments as arrays of one GPU; as NumPy arrays if none is on a GPU.

    Numbers of the host may be among them, and stay there, as NumPy arrays without axes.

    Args:
        tree, root: what an error needs to name a leaf, `root[0]['weights']`.

    Raises:
        PalladioTypeError, PalladioValueError: an array of a dtype that Palladio does not have, on another GPU, or in
            host memory.
    """
    home = card_of(leaves)
    if home is None:
        return all_to_numpy(leaves, tree, root)
    values: list[Any] = []
    for leaf in leaves:
        try:
            values.append(placed_or_number(leaf, root, home[1]))
        except PalladioError as error:
            if error.argument == root:
                error.argument = trees.leaf_names(tree, root)[len(values)]
            raise
    return values


def placed_or_number(leaf: Any, name: str, device: int) -> Any:
    """An array on a GPU where others of its call are, a `CardArray`; or a number of the host, as a NumPy array.

    Raises:
        PalladioTypeError, PalladioValueError: as in `all_on_card`.
    """
    is_number = isinstance(leaf, (bool, int, float, np.generic, np.ndarray)) and np.ndim(leaf) == 0
    return np.asarray(to_numpy(leaf, name)) if is_number else placed(leaf, name, device)


def placed(leaf: Any, name: str, device: int, exact: bool = False) -> CardArray:
    """An array on a GPU where others of its call are.

    Args:
        exact: refuse an array that would have to be copied, since it is written to.

    Raises:
        PalladioTypeError, PalladioValueError: as in `all_on_card`.
    """
    library = library_of(type(leaf))
    where = None if library is None else library.device(leaf)
    if where is None or library is None:
        raise PalladioValueError(
            "the array is in host memory, others of the call on a GPU",
            argument=name,
            got=type(leaf).__name__,
            hint=f"move it to cuda:{device}",
        )
    if where != device:
        raise PalladioValueError(
            "the arrays of a call are on one GPU", argument=name, expected=f"cuda:{device}", got=f"cuda:{where}"
        )
    view = library.view(leaf, name)
    if exact and not _is_its_own(view, leaf):
        raise PalladioValueError(
            "the array is not in row-major order without gaps, from a multiple of 16 bytes on", argument=name
        )
    if not dtypes.is_supported(view.dtype):
        raise PalladioTypeError(
            "an array of a dtype that Palladio does not have", argument=name, expected=dtypes.LISTED, got=view.dtype
        )
    return view


def _is_its_own(view: CardArray, array: Any) -> bool:
    """True if the view of an array is not a copy of it."""
    if view.library.name == "torch":
        return bool(view.address == array.data_ptr()) and bool(array.is_contiguous())
    return view.source is array


# PyTorch.


@functools.cache
def torch_dtype(dtype: dtypes.DType) -> Any:
    """The dtype of PyTorch that is one of ours."""
    return getattr(sys.modules["torch"], str(dtype))


@functools.cache
def _of_torch(dtype: Any) -> dtypes.DType:
    return dtypes.canonical(dtype)


def _torch_view(tensor: Any, name: str) -> CardArray:
    """The gradient is lost, and so are lazy negations: neither is in the memory."""
    torch = sys.modules["torch"]
    dual = has_tangent(torch, tensor)
    if dual or (tensor.requires_grad and torch.is_grad_enabled()):
        raise PalladioTypeError(
            "the gradient of the tensor would be lost",
            argument=name,
            got="a tensor with a tangent" if dual else "a tensor with requires_grad=True",
            hint="palladio.interop.torch has the library with gradients; without them, pass tensor.detach()",
        )
    if is_freed(tensor):
        require_memory(tensor, name)
    dense = tensor.detach().resolve_neg().contiguous()
    if dense.data_ptr() % ALIGNMENT:
        dense = dense.clone()
    return CardArray(
        dense.data_ptr(), tuple(dense.shape), _of_torch(dense.dtype), dense.get_device(), LIBRARIES["torch"], dense
    )


def _torch_facts(tensors: Sequence[Any]) -> Facts | None:
    kind, device = type(tensors[0]), tensors[0].get_device()
    if device < 0 or may_have_tangents(sys.modules["torch"]):
        return None
    kinds, addresses = [device], []
    for tensor in tensors:
        if type(tensor) is not kind and library_of(type(tensor)) is not LIBRARIES["torch"]:
            return None
        address, shape = tensor.data_ptr(), tensor.shape
        if not address or address % ALIGNMENT or tensor.get_device() != device:
            return None
        if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
            return None
        if (not shape or shape[-1] < _LAZY) and shape.numel() < _LAZY and tensor.is_neg():
            return None
        kinds += (tensor.dtype, shape if tensor.is_contiguous() else Strided(shape, tensor.stride()))
        addresses.append(address)
    return kinds, tuple(addresses)


@functools.cache
def _torch_device(device: int) -> Any:
    return sys.modules["torch"].device("cuda", device)


def _torch_new(layout: Layout, dtype: Any, device: int) -> Callable[[], Any]:
    empty = sys.modules["torch"].empty_strided  # less to look at for PyTorch than torch.empty
    return functools.partial(empty, *strided(layout), dtype=dtype, device=_torch_device(device))


def _torch_maker(layout: Layout, dtype: Any, device: int) -> Callable[[], tuple[Any, int]]:
    new = _torch_new(layout, dtype, device)

    def make() -> tuple[Any, int]:
        made = new()
        return made, made.data_ptr()

    return make


def _torch_empty(shape: Shape, dtype: dtypes.DType, device: int) -> CardArray:
    made, address = _torch_maker(shape, torch_dtype(dtype), device)()
    return CardArray(address, tuple(shape), dtype, device, LIBRARIES["torch"], made)


def _torch_upload(array: Any, device: int) -> CardArray:
    made = _torch_empty(array.shape, array.dtype, device)
    made.source.copy_(from_numpy(array, "torch"))
    return made


def _torch_stream(device: int) -> int:
    return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))


class _ExchangeAPI(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("before", "allocate", "export", "import", "read", "stream")),
    ]


@functools.cache
def _torch_exchange() -> Exchange | None:
    torch = sys.modules["torch"]
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api = _ExchangeAPI.from_address(pointer(capsule, b"dlpack_exchange_api"))
    functions = api.read, api.stream
    if api.major != _EXCHANGE_MAJOR or None in functions:
        return None
    kinds = torch.Tensor, torch.nn.Parameter
    levels = vars(torch.autograd.forward_ad).items(), ("_current_level", 0)  # PyTorch has this level alone
    usual = Conditions(absent=(levels,))
    return Exchange(*functions, _CUDA, kinds, torch.is_grad_enabled, usual, _torch_new, _torch_allocator())


_SHIM = ("empty_strided", "get_data_ptr", "delete_tensor_object")
_WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"


def _torch_allocator() -> Allocator | None:
    """The functions that PyTorch exports to generated code; None for a version without them."""
    try:
        exported = ctypes.CDLL(sys.modules["torch"]._C.__file__)  # finds what its dependencies export, too
        pointers = [exported[f"aoti_torch_{name}"] for name in _SHIM] + [exported[_WRAP]]
        addresses = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in pointers]
        device_type = exported[f"aoti_torch_device_type_{_torch_device(0).type}"]()
        found = {str(each): getattr(exported, f"aoti_torch_dtype_{each}", None) for each in dtypes.ALL}
    except (AttributeError, OSError):
        return None
    return Allocator(*addresses, {name: each() for name, each in found.items() if each is not None}, device_type)


# CuPy.


def _cupy_view(array: Any, name: str) -> CardArray:
    cupy = sys.modules["cupy"]
    dense = array if array.flags.c_contiguous else cupy.ascontiguousarray(array)
    if dense.data.ptr % ALIGNMENT:
        dense = dense.copy()
    return CardArray(dense.data.ptr, tuple(dense.shape), dense.dtype, dense.device.id, LIBRARIES["cupy"], dense)


def _cupy_facts(arrays: Sequence[Any]) -> Facts | None:
    device = arrays[0].device.id
    kinds, addresses = [device], []
    for array in arrays:
        if type(array) is not type(arrays[0]) or array.device.id != device:
            return None
        address = array.data.ptr
        if address % ALIGNMENT or not array.flags.c_contiguous:
            return None
        kinds += (array.dtype, array.shape)
        addresses.append(address)
    return kinds, tuple(addresses)


def _cupy_maker(layout: Layout, dtype: Any, device: int) -> Callable[[], tuple[Any, int]]:
    cupy, shape = sys.modules["cupy"], strided(layout).shape  # it has no results in another order

    def make() -> tuple[Any, int]:
        with cupy.cuda.Device(device):
            made = cupy.empty(shape, dtype)
        return made, made.data.ptr

    return make


def _cupy_empty(shape: Shape, dtype: dtypes.DType, device: int) -> CardArray:
    made, address = _cupy_maker(shape, dtype, device)()
    return CardArray(address, tuple(shape), dtype, device, LIBRARIES["cupy"], made)


def _cupy_upload(array: Any, device: int) -> CardArray:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        return _cupy_view(cupy.asarray(array), "")


def _cupy_stream(device: int) -> int:
    return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)


# JAX has streams of its own: a kernel waits for its operands to be complete, and JAX gets only complete results.


def _jax_device(array: Any) -> int | None:
    devices = getattr(array, "devices", None)
    if devices is None or any(base.__name__ == "Tracer" for base in type(array).__mro__):
        return None  # a traced value has no memory
    found = list(devices())
    if len(found) != 1 or found[0].platform not in ("gpu", "cuda"):
        return None
    return int(found[0].local_hardware_id)


def _jax_view(array: Any, name: str) -> CardArray:
    ready = array.block_until_ready()
    device = _jax_device(array) or 0
    return CardArray(ready.unsafe_buffer_pointer(), tuple(ready.shape), ready.dtype, device, LIBRARIES["jax"], ready)


def _jax_on(device: int) -> Any:
    devices = sys.modules["jax"].devices("gpu")
    return next(each for each in devices if each.local_hardware_id == device)


def _jax_empty(shape: Shape, dtype: dtypes.DType, device: int) -> CardArray:
    return _jax_view(sys.modules["jax"].numpy.zeros(shape, dtype, device=_jax_on(device)), "")


def _jax_upload(array: Any, device: int) -> CardArray:
    return _jax_view(sys.modules["jax"].device_put(array, _jax_on(device)), "")


# Any other.


def _interface_device(array: Any) -> int | None:
    found = getattr(array, "__cuda_array_interface__", None)
    return None if found is None else int(getattr(getattr(array, "device", None), "id", 0))


def _interface_view(array: Any, name: str) -> CardArray:
    facts = array.__cuda_array_interface__
    shape, dtype = tuple(facts["shape"]), np.dtype(getattr(array, "dtype", facts["typestr"]))
    address, strides = facts["data"][0], facts.get("strides")
    dense = [dtype.itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
    if strides is not None and any(a != b for a, b, size in zip(strides, dense, shape) if size > 1):
        raise PalladioValueError(
            "the array is not in row-major order without gaps", argument=name, got=f"strides of {strides} bytes"
        )
    if address % ALIGNMENT:
        raise PalladioValueError("the array is not aligned to 16 bytes", argument=name, got=f"{address:#x}")
    return CardArray(address, shape, dtype, _interface_device(array) or 0, INTERFACE, array)


def _exchanged_device(array: Any) -> int | None:
    kind, device = array.__dlpack_device__()
    return int(device) if kind == _CUDA else None


def _exchanged_view(array: Any, name: str) -> CardArray:
    """An array that only speaks DLPack, through a library that reads it."""
    if "torch" in sys.modules:
        return _torch_view(sys.modules["torch"].from_dlpack(array), name)
    if "cupy" in sys.modules:
        return _cupy_view(sys.modules["cupy"].from_dlpack(array), name)
    raise PalladioTypeError(
        "an array on a GPU that has only DLPack is read through PyTorch or CuPy",
        argument=name,
        got=type(array).__name__,
        hint="import torch, or give the array __cuda_array_interface__",
    )


def _through_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch or CuPy, whichever is there, for libraries that say nothing of allocation or streams."""

    def call(*args: Any) -> Any:
        name = "cupy" if "cupy" in sys.modules and "torch" not in sys.modules else "torch"
        if name not in sys.modules:
            raise PalladioTypeError(
                "results of arrays that only have __cuda_array_interface__ are allocated by PyTorch or CuPy",
                got="neither is imported",
                hint="import torch",
            )
        return function(LIBRARIES[name])(*args)

    return call


LIBRARIES: dict[str, Library] = {
    "torch": Library(
        "torch",
        lambda tensor: tensor.get_device() if getattr(tensor, "is_cuda", False) else None,
        *(_torch_view, _torch_empty, _torch_upload, _torch_stream),
        facts=_torch_facts,
        maker=_torch_maker,
        native=torch_dtype,
        exchange=_torch_exchange,
    ),
    "cupy": Library(
        "cupy",
        lambda array: array.device.id if hasattr(array, "device") else None,
        *(_cupy_view, _cupy_empty, _cupy_upload, _cupy_stream),
        facts=_cupy_facts,
        maker=_cupy_maker,
    ),
}
LIBRARIES["jax"] = LIBRARIES["jaxlib"] = Library(
    "jax", _jax_device, _jax_view, _jax_empty, _jax_upload, lambda device: LEGACY_STREAM, synchronous=True
)
_OTHERS = (
    _through_torch(lambda library: library.empty),
    _through_torch(lambda library: library.upload),
    _through_torch(lambda library: library.stream),
)
INTERFACE = Library("__cuda_array_interface__", _interface_device, _interface_view, *_OTHERS, synchronous=True)
EXCHANGED = Library("__dlpack__", _exchanged_device, _exchanged_view, *_OTHERS, synchronous=True)
