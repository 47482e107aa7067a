"""A call of a kernel on arrays of a card: its results, its workspaces, and the launch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.array.on_card import CardArray, Conditions, Layout, Library, library_of, strided
from palladio.base import knobs
from palladio.hopper.compile import Cubin, compiled
from palladio.hopper.launch.driver import driver
from palladio.hopper.launch.exchanged import Description, exchanged
from palladio.hopper.launch.kernel import LoadedKernel
from palladio.hopper.lowered import Array, FewerRows, Lowered, ScalarParameter
from palladio.types import dtypes
from palladio.types.types import Shape


class KernelCall:
    """A kernel, loaded on each device on its first call there.

    Args:
        cubin: its machine code; None to compile it at the first load.
        like: a call with the same machine code, for arrays of other sizes.
    """

    def __init__(self, lowered: Lowered, cubin: Cubin | None = None, like: KernelCall | None = None) -> None:
        self.lowered = lowered
        self.cubin = cubin
        self._like = like
        self.compiled: Callable[[Lowered, Cubin], None] | None = None
        """Called with the machine code after compilation."""
        self._loaded: dict[int, LoadedKernel] = {}
        self._lock = threading.Lock()
        self._zeroed = [number for number, each in enumerate(lowered.arrays) if each.zeroed]
        self.by_value = tuple(each.operand for each in lowered.parameters if isinstance(each, ScalarParameter))
        self._host = frozenset((*self.by_value, *lowered.dynamic))
        self._outputs = [array for array in lowered.arrays if array.role == "output"]
        self.plain = not (self._zeroed or lowered.dynamic or lowered.aliases or lowered.copied) and lowered.grid > 0

    def on(self, device: int) -> LoadedKernel:
        """The kernel, loaded on a device.

        Raises:
            CardError: there is no such Hopper card, or the driver cannot load the kernel.
        """
        found = self._loaded.get(device)
        if found is None:
            with self._lock:
                found = self._loaded.get(device)
                if found is None:
                    known, like = driver(), None if self._like is None else self._like.on(device)
                    code = None if like is not None else self._code()
                    loaded = LoadedKernel(self.lowered, known, known.hopper(device), code, like)
                    found = self._loaded[device] = loaded
        return found

    def _code(self) -> Cubin:
        if self.cubin is None:
            self.cubin = compiled(self.lowered)
            if self.compiled is not None:
                self.compiled(self.lowered, self.cubin)
        return self.cubin

    def of_fewer_rows(self, fewer: FewerRows) -> KernelCall | None:
        """The call for arrays with fewer rows, in the same machine code; None if that cannot be."""
        if not fewer.operands and not fewer.results:
            return self
        found = self.lowered.of_fewer_rows(fewer)
        return None if found is None else KernelCall(found, like=self)

    def takes_from_host(self, number: int) -> bool:
        """True if an operand is a number that is passed by value or determines the size of the grid."""
        return number in self._host

    def __call__(
        self, operands: Sequence[Any], library: Library, device: int, out: Sequence[CardArray | None] = ()
    ) -> list[CardArray]:
        """The outputs of the kernel.

        Args:
            operands: arrays on the device, and numbers of the host for operands by value.
            library: allocates outputs and workspaces, and gives the stream of the launch.
            out: memory for the outputs; for None, `library` allocates it.

        Raises:
            CardError: the driver fails.
        """
        kernel = self.on(device)
        stream = library.stream(device)
        if self._host:
            operands = [kernel.number(value, stream) if n in self._host else value for n, value in enumerate(operands)]
        given = list(out) or [None] * len(self._outputs)
        outputs = [each or library.empty(array.shape, array.dtype, device) for each, array in zip(given, self._outputs)]
        memory = [self._memory(array, operands, outputs, library, device) for array in self.lowered.arrays]
        if not self.plain:
            self._prepare(memory, operands, outputs, library, device)
        blocks = self.lowered.blocks(operands) if self._host else self.lowered.grid
        if blocks:
            numbers = tuple([operands[number] for number in self.by_value])
            addresses = tuple([each.address for each in memory])
            kernel.launch(stream, addresses, numbers, blocks)
        if library.synchronous:
            with kernel.driver.current(kernel.device):
                kernel.driver.call("cuStreamSynchronize", stream)
        return outputs

    def _memory(
        self, array: Array, operands: Sequence[Any], outputs: Sequence[CardArray], library: Library, device: int
    ) -> Any:
        if array.role == "operand":
            found = operands[array.position]
            return _HOST_OPERAND if array.position in self._host and not isinstance(found, CardArray) else found
        return outputs[array.position] if array.role == "output" else library.empty(array.shape, array.dtype, device)

    def _prepare(
        self, memory: list[Any], operands: Sequence[Any], outputs: list[CardArray], library: Library, device: int
    ) -> None:
        """Initialise memory before the launch: aliased outputs, zeroed workspaces, and all outputs of an empty grid."""
        kernel, stream, arrays = self.on(device), library.stream(device), self.lowered.arrays
        known = kernel.driver
        with known.current(kernel.device):
            for source, target in (*self.lowered.aliases, *self.lowered.copied):
                operand, output = operands[source], outputs[target]
                number = next(n for n, each in enumerate(arrays) if (each.role, each.position) == ("operand", source))
                to = output
                if (source, target) in self.lowered.aliases:
                    memory[number] = output
                elif operand.address == output.address:  # the kernel reads the values of the call from a copy
                    memory[number] = to = library.empty(operand.shape, operand.dtype, device)
                if operand.address != to.address and output.nbytes:
                    known.call("cuMemcpyDtoDAsync", to.address, operand.address, output.nbytes, stream)
            empty = [] if self.lowered.blocks(operands) else [*outputs]
            for each in (*(memory[number] for number in self._zeroed), *empty):
                if each.nbytes:
                    known.call("cuMemsetD8Async", each.address, 0, each.nbytes, stream)


def _bytes(shape: Shape, dtype: dtypes.DType) -> int:
    return math.prod(shape) * dtype.itemsize


def _is_number(value: Any, type: tuple[Shape, dtypes.DType]) -> bool:
    """True for a number of the host of exactly this type, with which nothing is to be checked or converted."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return False
    dtype = value.dtype
    return (dtype is type[1] or dtype == type[1]) and value.shape == type[0]


class KeptCall:
    """The fast path of a call: a kernel on arrays of fixed shapes and dtypes, with one result.

    Operands that the kernel takes by value are numbers of the host here.

    Args:
        call: the call of the kernel.
        types: the shape and dtype of each operand.
    """

    def __init__(self, call: KernelCall, types: Sequence[tuple[Shape, dtypes.DType]]) -> None:
        self._call = call
        self._types = list(types)
        self._numbers = call.by_value
        self._on_card = [n for n in range(len(types)) if n not in call.by_value]
        arrays = call.lowered.arrays
        roles = [each.role for each in arrays]
        self._made = [(each.shape, each.dtype) for each in arrays if each.role != "operand"]
        in_order = roles[: len(types)] == ["operand"] * len(types) and roles.count("output") == 1
        with_result = in_order and roles[len(types) : len(types) + 1] == ["output"]
        self.usable = call.plain and with_result and bool(self._on_card)
        self._ready: dict[tuple[Library, int], ReadyCall] = {}
        self.last: ReadyCall | None = None
        """The call for the arrays of the previous one."""
        self.exchanged: Callable[[tuple[Any, ...], Any], Any] | None = None
        """`ReadyCall.exchanged` of the last call."""

    def __call__(self, arrays: Sequence[Any], out: Any = None) -> Any:
        """The result as an array of the operands' library; None if the call needs the slow path.

        Raises:
            CardError: the driver fails.
        """
        numbers: tuple[Any, ...] = ()
        if self._numbers:
            for number in self._numbers:
                if not _is_number(arrays[number], self._types[number]):
                    return None
            numbers = tuple([arrays[number] for number in self._numbers])
            arrays = [arrays[number] for number in self._on_card]
        library = library_of(type(arrays[0]))
        facts = None if library is None or library.facts is None else library.facts(arrays)
        if library is None or facts is None:
            return None
        kinds, addresses = facts
        known = self.last
        if known is None or known.kinds != kinds:
            known = self._known(library, kinds)
            if known is None:
                return None
        if numbers:
            places = [0] * len(self._types)  # as in `ReadyCall`
            for number, address in zip(self._on_card, addresses):
                places[number] = address
            addresses = tuple(places)
        result = known(addresses, out, numbers)
        self.exchanged = known.exchanged
        return result

    def _known(self, library: Library, kinds: list[Any]) -> ReadyCall | None:
        """The call for these arrays, which becomes the last one; None if the arrays are not of its types."""
        device, *found = kinds
        types = (self._types[number] for number in self._on_card)
        wanted = [fact for shape, dtype in types for fact in (library.native(dtype), shape)]
        if found != wanted:
            return None
        known = self._ready.get((library, device))
        if known is None:
            known = self._made_for(library, device)
            known.kinds = kinds
            known.expect(kinds, Conditions(), {n: self._types[n] for n in self._numbers})
            self._ready[library, device] = known
        self.last = known
        return known

    def ready(self, library: Library, device: int, shape: Layout, numbers: tuple[Any, ...] = ()) -> ReadyCall | None:
        """The call for addresses alone, of arrays of a library on a device; None if the kernel takes other numbers.

        Args:
            shape: the layout of the result, with as many elements as the kernel's.
            numbers: the last operands, if they are passed by value.

        Raises:
            CardError: as in `KernelCall.on`.
        """
        count = len(self._types)
        if list(self._numbers) != [*range(count - len(numbers), count)]:
            return None
        return self._made_for(library, device, shape, numbers)

    def _made_for(
        self, library: Library, device: int, shape: Layout | None = None, numbers: tuple[Any, ...] = ()
    ) -> ReadyCall:
        made: list[tuple[Layout, Any]] = [(shape, library.native(dtype)) for shape, dtype in self._made]
        if shape is not None:
            made[0] = shape, made[0][1]
        sizes = [_bytes(*type) for type in (*self._types, self._made[0])]
        return ReadyCall(self._call.on(device), library, device, made, sizes, numbers)


class ReadyCall:
    """A kernel on a device, for arrays of one library with checked types.

    Args:
        made: the layout and dtype of the result, then of workspaces.
        sizes: the bytes of each operand and of the result.
        numbers: the last operands, if all calls pass the same numbers by value.
    """

    __slots__ = (
        *("_conditions", "_device", "_expected", "_given", "_kernel", "_launch", "_library", "_make"),
        *("_make_workspaces", "_numbers", "_places", "_result", "_sizes", "_stream", "_owner", "exchanged", "kinds"),
    )

    def __init__(
        self,
        kernel: LoadedKernel,
        library: Library,
        device: int,
        made: list[tuple[Layout, Any]],
        sizes: list[int],
        numbers: tuple[Any, ...] = (),
    ) -> None:
        self._kernel = kernel
        self._owner: Any = None
        self._launch = kernel.launch
        self._stream = library.stream
        self._library = library
        self._device = device
        self._result = made[0]
        self._sizes = sizes
        self._numbers = numbers
        self._places = (0,) * len(numbers)  # no kernel reads a number from memory
        self._expected: list[Any] | None = None
        self._given: Mapping[int, tuple[Shape, dtypes.DType]] = {}
        self._conditions = Conditions()
        self.exchanged: Callable[[tuple[Any, ...], Any], Any] | None = None
        """A function of the operands themselves and of the array for the result or None, after the first call; None
        without one. See `exchanged`."""
        self.kinds: list[Any] = []
        maker: Any = library.maker
        self._make, *self._make_workspaces = (maker(*each, device) for each in made)

    def __call__(self, addresses: tuple[int, ...], out: Any = None, numbers: tuple[Any, ...] = ()) -> Any:
        """The result for operands at these addresses; None if `out` does not fit the result or overlaps an operand.

        Args:
            numbers: those that the kernel takes by value, in the order of its parameters.

        Raises:
            CardError: the driver fails.
        """
        if out is None:
            result, address = self._make()
        else:
            address = self._address(out, addresses)
            if address < 0:
                return None
            result = out
        if self._numbers:
            numbers, addresses = self._numbers, addresses + self._places
        addresses = (*addresses, address)
        if self._make_workspaces:
            workspaces = [make() for make in self._make_workspaces]  # alive until the launch is enqueued
            addresses += tuple([each[1] for each in workspaces])
        self._launch(self._stream(self._device), addresses, numbers)
        if self._expected is not None:
            self._exchange()
        return result

    def expect(
        self,
        kinds: list[Any],
        conditions: Conditions,
        numbers: Mapping[int, tuple[Shape, dtypes.DType]] | None = None,
    ) -> None:
        """Prepare for arrays of these facts, `Library.facts`.

        Args:
            conditions: the state of the process that calls depend on.
            numbers: the types of operands that each call passes by value, by position, in the order of the kernel's
                parameters.
        """
        self.kinds = self._expected = kinds
        self._conditions, self._given = conditions, numbers or {}

    def _exchange(self) -> None:
        """Make `exchanged`, once there is the launch that it is part of."""
        expected, self._expected = self._expected, None
        found, kernel = self._library.exchange(), self._kernel
        if expected is None or found is None or kernel.direct is None or self._make_workspaces:
            return
        if self._given and [dtype for _, dtype in self._given.values()] != kernel.number_dtypes:
            return  # numbers are converted
        arrays = zip(map(strided, expected[2::2]), map(dtypes.canonical, expected[1::2]))
        count = len(expected) // 2 + len(self._given)
        given = {n: (strided(shape), dtype) for n, (shape, dtype) in self._given.items()}
        operands = [given[n] if n in given else next(arrays) for n in range(count)]
        made_for = Description(
            self._device,
            operands,
            (strided(self._result[0]), dtypes.canonical(self._result[1])),
            found.new(*self._result, self._device),
            kernel.words(self._numbers),
            tuple(self._given),
            self._conditions + found.usual + Conditions(absent=(knobs.synchronous.place,)),
            (kernel.driver.recent.append, kernel.lowered.name),
        )
        self._owner = exchanged(kernel.direct, found, made_for)
        self.exchanged = None if self._owner is None else self._owner.call

    def _address(self, out: Any, addresses: Sequence[int]) -> int:
        """The address of the caller's array for the result; -1 if it cannot be used."""
        library, (shape, dtype) = self._library, self._result
        facts: Any = library.facts((out,)) if library_of(type(out)) is library else None  # type: ignore[misc]
        if facts is None or facts[0] != [self._device, dtype, shape]:
            return -1
        start: int = facts[1][0]
        end = start + self._sizes[-1]
        for address, size in zip(addresses, self._sizes):
            if start < address + size and address < end:
                return -1
        return start


# Arrays of the host, copied to the card and back.


class _HostOperand:
    """The address of an operand on the host, which no kernel reads from memory."""

    address = 0
    nbytes = 0


_HOST_OPERAND = _HostOperand()


class HostMemory:
    """Memory of a card for calls on arrays of the host; freed at the end of the `with` block.

    Args:
        synchronous: True if a call waits for its end.
    """

    def __init__(self, device: int, synchronous: bool = True) -> None:
        self.driver = driver()
        self.device = self.driver.hopper(device)
        self._addresses: list[int] = []
        self.library = Library(
            "numpy", lambda array: None, self._unused, self.empty, self.upload, lambda index: 0, synchronous
        )

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with self.driver.current(self.device):
            for address in self._addresses:
                self.driver.api.cuMemFree(address)  # ignore the status: an earlier or later call raises a sticky error

    @staticmethod
    def _unused(array: Any, name: str) -> CardArray:
        raise NotImplementedError

    def empty(self, shape: Shape, dtype: dtypes.DType, device: int) -> CardArray:
        """New memory for an array."""
        size = math.prod(shape) * dtype.itemsize
        with self.driver.current(self.device):
            address = int(self.driver.call("cuMemAlloc", max(1, size)))
        self._addresses.append(address)
        return CardArray(address, tuple(shape), dtype, device, self.library, None)

    def upload(self, array: Any, device: int) -> CardArray:
        """A copy of an array of the host."""
        dense = np.ascontiguousarray(array).reshape(np.shape(array))
        made = self.empty(dense.shape, dense.dtype, device)
        if made.nbytes:
            with self.driver.current(self.device):
                self.driver.call("cuMemcpyHtoDAsync", made.address, dense.ctypes.data, made.nbytes, 0)
                self.driver.call("cuStreamSynchronize", 0)
        return made

    def download(self, array: CardArray) -> np.ndarray:
        """A copy of an array of the card."""
        made = np.empty(array.shape, array.dtype)
        if made.nbytes:
            with self.driver.current(self.device):
                self.driver.call("cuMemcpyDtoHAsync", made.ctypes.data, array.address, made.nbytes, 0)
                self.driver.call("cuStreamSynchronize", 0)
        return made


def on_host_arrays(call: KernelCall, values: Sequence[Any], device: int = 0) -> list[np.ndarray]:
    """The outputs of a kernel on arrays of the host, which are copied to a card and back.

    Raises:
        CardError: there is no Hopper card, or the driver fails.
    """
    with HostMemory(device) as memory:
        operands = [
            value if call.takes_from_host(number) else memory.upload(value, device)
            for number, value in enumerate(values)
        ]
        return [memory.download(each) for each in call(operands, memory.library, device)]
