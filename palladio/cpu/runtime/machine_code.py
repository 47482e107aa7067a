"""From LLVM text to machine code, kept on disk so that processes share it.

Code is keyed by everything that determines it: the text, the target processor, and the version and options of LLVM.
Palladio's version is not in the key: a version that writes another text, or runs other passes on it, finds no entry,
and one that makes the same code can use it. LLVM is imported where code is compiled, not where it is found.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import llvmlite

from palladio.base import object_store
from palladio.base.holding import HOLDING
from palladio.base.signals import uninterrupted
from palladio.cpu.runtime import elf, host, unlocked
from palladio.cpu.runtime.detected import detected
from palladio.cpu.runtime.host import Processor
from palladio.cpu.runtime.unlocked import HELPING

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # LLVM has locks too: a forked process would find them held for ever by a thread that it does not have.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_LEVEL = 2
_TUNING = {"slp_vectorization": False, "loop_vectorization": False, "loop_unrolling": False}
"""The lowering vectorises and unrolls itself."""

_LONG, _LONG_OF_SEVERAL, _SHORTER_LEVEL = 2000, 1500, 1
"""Lines of text beyond which fewer passes run, of one function and of several; and LLVM's level for these."""

_UNUSED = ("global_dead_code_eliminate",)
"""The one pass on the whole of a module of one function. LLVM's list for modules takes nearly twice as long as that for
functions, and makes the same code of most kernels."""

_BETWEEN = ("ipsccp", "dead_arg_elimination", "global_opt", "post_order_function_attributes")
"""Passes on the whole of a module of several functions: micro-kernels get those of their arguments that all calls share
as constants, which the passes on each function then use."""

_AROUND = ("sroa", "loop_rotate", "instruction_combine", "new_gvn", "simplify_cfg")
"""Passes on a function that calls others, which spends its time in them: a long product with all cases of its edges,
whose passes would take most of the time of a first call, and the native code of calls. Micro-kernels have all those of
`_SHORTER_LEVEL`: with these alone, attention and a convolution took 5 % longer on AVX-512. So did `tgmm`, whose text is
shorter and packs more, with these around its micro-kernels."""

_STRAIGHT = ("sroa", "loop_rotate", "instruction_combine", "simplify_cfg")
"""Passes on a micro-kernel with the attribute `STRAIGHT`, for which those of `_SHORTER_LEVEL` take five times as long
and make the same code."""

_LIGHT = ("sroa", "simplify_cfg")
"""Passes on a single function with the attribute `LIGHT`. Where all of several have it, those of `_AROUND` run: they
are the native code of calls, and a call with tensors took 0.8 µs more without them."""

LIGHT = '"light"'
"""An attribute of functions that run for microseconds in a call. More passes would take longer than they ever save."""

STRAIGHT = '"straight"'
"""An attribute of micro-kernels that are emitted as they are to run: in few loops, with nothing to simplify but the
arguments that all calls share."""

_DEFINED = re.compile(r"\ndefine [^@\n]*@([\w.]+).*")
"""The first line of each function after another line, and its name."""

_OPTION = "-dag-maps-huge-region=200"
"""Memory accesses in straight-line code beyond which LLVM's schedulers compare each with only a few others, not all:
kernels with hundreds of unrolled accesses took quadratic time. LLVM's default is 1000."""


@functools.cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.set_option("palladio", _OPTION)  # a second time would be an error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def _target_machine(processor: Processor) -> Any:
    import llvmlite.binding as llvm

    _initialize()
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(cpu=processor.cpu, features=processor.features, opt=_LEVEL, jit=True)


class _Fewer(NamedTuple):
    """Passes on some functions in place of those of a level.

    Fields:
        functions: their names.
    """

    passes: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


class _Passes(NamedTuple):
    """The passes on a module. They are a part of its key: code made by another rule for the same text is not used.

    Fields:
        level: LLVM's level.
        only: passes on the whole module in place of all others.
        between: passes on the whole module, after which those of the level run on each function alone; without any,
            those of the level run on the whole module.
        around: those on functions that call others.
        straight: those on micro-kernels that are emitted as they are to run.
        halves: whether the functions of `around` and the others, micro-kernels, are compiled at once, each to an object
            file.
    """

    level: int
    only: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    around: _Fewer = _Fewer()
    straight: _Fewer = _Fewer()
    halves: bool = False


def _passes(text: str) -> _Passes:
    # Cold ones compute exact values of huge arguments.
    heads = [head for head in _DEFINED.finditer("\n" + text) if ") cold " not in head[0]]
    if all(LIGHT in head[0] for head in heads):
        return _Passes(_SHORTER_LEVEL, _LIGHT if len(heads) == 1 else _AROUND)
    # A coroutine needs passes that only the whole list has.
    if "presplitcoroutine" in text:
        return _Passes(_LEVEL)
    several, lines = len(heads) > 1, text.count("\n")
    if lines <= (_LONG_OF_SEVERAL if several else _LONG):
        return _Passes(_LEVEL) if several else _Passes(_LEVEL, between=_UNUSED)
    around = tuple(head[1] for head in heads if " noinline" not in head[0]) if several else ()
    straight = tuple(head[1] for head in heads if STRAIGHT in head[0])
    halves = 0 < len(around) < len(heads)
    fewer = [_Fewer(passes, names) for passes, names in ((_AROUND, around), (_STRAIGHT, straight))]
    return _Passes(_SHORTER_LEVEL, (), _BETWEEN, *[each if each.functions else _Fewer() for each in fewer], halves)


def _key(text: str, processor: Processor) -> str:
    target = processor.triple, processor.cpu, processor.features
    maker = llvmlite.__version__, detected().version, _OPTION, _TUNING, tuple(_passes(text))
    return hashlib.sha256("\0".join((*target, repr(maker), text)).encode()).hexdigest()


SOON: list[Callable[[], object]] = []
"""Functions that make the code that a process with its first kernel needs next. They are called while LLVM is busy with
that kernel."""

_dead: deque[Any] = deque()
"""Execution engines that are no longer used. The next compilation frees them, where no interrupt can occur."""


class _Owner:
    """An object whose destructor is a C function."""

    __slots__ = ("__del__",)


class NotOnDiskError(LookupError):
    """Machine code that is requested by its key alone is not, or no longer, in the store."""


class MachineCode:
    """The machine code of a module with a function `kernel`. It lives as long as this object.

    A pickled one is its key: reading it finds the code on disk, or raises `NotOnDiskError`.

    Args:
        key: of a module whose code is on disk, in place of its text.
        meanwhile: functions that compile other modules: they are called while LLVM is busy with this one, in other
            threads. None is called if the code is on disk.
    """

    def __init__(self, text: str, key: str | None = None, meanwhile: Sequence[Callable[[], object]] = ()) -> None:
        self.text = text
        self.processor = host.current()
        self.key = key or _key(text, self.processor)
        compile = functools.partial(self._code, meanwhile)
        # llvmlite's lock around each of its functions would stay held after an interrupt at the wrong moment.
        uninterrupted(functools.partial(self._make_alone, compile if key is None else _missing))

    def __reduce__(self) -> Any:
        return MachineCode, ("", self.key)

    def _make_alone(self, compile: Callable[[], bytes]) -> None:
        if HELPING.now:  # the thread that waits for this one holds the lock
            self._make(compile)
            return
        with _lock:
            HOLDING.count += 1
            try:
                _dead.clear()
                self._make(compile)
            finally:
                HOLDING.count -= 1

    def _make(self, compile: Callable[[], bytes]) -> None:
        """Compile, or load code that another process has compiled. LLVM's intermediate objects are freed at the end."""
        code, self.compiled_here = object_store.compiled_once(self.key, compile)
        self._memory = elf.loaded(code)
        self.address = self._loaded_by_llvm(code) if self._memory is None else self._memory.address
        self.call = KERNEL(self.address("kernel"))

    def _loaded_by_llvm(self, code: bytes) -> Callable[[str], int]:
        """The addresses, by their names, of the functions in code that LLVM loads."""
        import llvmlite.binding as llvm

        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(self.processor))
        for part in elf.parts(code):
            engine.add_object_file(llvm.ObjectFileRef.from_data(part))
        engine.finalize_object()
        self._owner = _Owner()
        self._owner.__del__ = functools.partial(_dead.append, engine)
        return engine.get_function_address  # type: ignore[no-any-return]

    def _code(self, meanwhile: Sequence[Callable[[], object]]) -> bytes:
        _initialize()  # before another thread might do the same
        soon, SOON[:] = SOON[:], ()
        return unlocked.at_once(self._alone, *meanwhile, *soon)[0]  # type: ignore[return-value]

    def _alone(self) -> bytes:
        if _passes(self.text).halves:
            return _in_halves(self.text, self.processor)
        machine = _target_machine(self.processor)
        return unlocked.object_code(machine, _optimised(self.text, machine))

    def assembly(self) -> str:
        """The machine code as text."""
        return uninterrupted(self._assembly_alone)

    def _assembly_alone(self) -> str:
        with _lock:
            return assembly(self.text, self.processor)


def _missing() -> bytes:
    raise NotOnDiskError


def assembly(text: str, processor: Processor) -> str:
    """The machine code of a module for a processor, as text."""
    machine = _target_machine(processor)
    return str(machine.emit_assembly(_optimised(text, machine)))


def _optimised(text: str, machine: Any) -> Any:
    """The module after LLVM's passes."""
    import llvmlite.binding as llvm

    module = unlocked.parsed(text)
    module.verify()
    passes = _passes(text)
    builder = _builder(machine, passes)
    if passes.between:
        _run(_manager(llvm.create_new_module_pass_manager(), passes.between), [module], builder)
        _run_on_each([each for each in module.functions if not each.is_declaration], passes, builder)
    else:
        only = _manager(llvm.create_new_module_pass_manager(), passes.only) if passes.only else None
        _run(only or builder.getModulePassManager(), [module], builder)
    return module


def _builder(machine: Any, passes: _Passes) -> Any:
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=passes.level)
    for name, wanted in _TUNING.items():
        setattr(options, name, wanted)
    return llvm.create_pass_builder(machine, options)


def _run_on_each(functions: Iterable[Any], passes: _Passes, builder: Any) -> None:
    """Run the passes on functions alone."""
    import llvmlite.binding as llvm

    others = list(functions)
    for fewer in (passes.around, passes.straight):
        mine = [each for each in others if each.name in fewer.functions]
        others = [each for each in others if each.name not in fewer.functions]
        _run(_manager(llvm.create_new_function_pass_manager(), fewer.passes), mine, builder)
    _run(builder.getFunctionPassManager(), others, builder)


def _in_halves(text: str, processor: Processor) -> bytes:
    """The object code of a long product, in two parts: of its micro-kernels and of its other functions."""
    import llvmlite.binding as llvm

    passes = _passes(text)
    module = unlocked.parsed(text)
    module.verify()
    manager = _manager(llvm.create_new_module_pass_manager(), passes.between)
    _run(manager, [module], _builder(_target_machine(processor), passes))
    modules = module, unlocked.copied(module)
    halves = [functools.partial(_half, each, processor, passes, each is not module) for each in modules]
    return elf.joined(unlocked.at_once(*halves))


def _half(module: Any, processor: Processor, passes: _Passes, of_kernels: bool) -> bytes:
    """The object code of the micro-kernels of a long product, or of its other functions."""
    import llvmlite.binding as llvm

    machine = _target_machine(processor)
    builder = _builder(machine, passes)
    functions = [each for each in module.functions if not each.is_declaration]
    others = [each for each in functions if each.name in passes.around.functions]
    kernels = [each for each in functions if each.name not in passes.around.functions]
    for each in others if of_kernels else ():
        each.linkage = "internal"
    for each in kernels:
        each.linkage = "external" if of_kernels else "available_externally"
        if not of_kernels:
            each.add_function_attribute("optnone")  # or LLVM would prepare it for code that it does not emit
    _run_on_each(kernels if of_kernels else others, passes, builder)
    if of_kernels:
        _run(_manager(llvm.create_new_module_pass_manager(), ["global_dead_code_eliminate"]), [module], builder)
    return unlocked.object_code(machine, module)


def _manager(manager: Any, names: Iterable[str]) -> Any:
    """A manager with some passes."""
    for name in names:
        getattr(manager, f"add_{name}_pass")()
    return manager


def _run(manager: Any, parts: Iterable[Any], builder: Any) -> None:
    """Run the passes of a manager on modules or functions, and free it."""
    from llvmlite.binding.newpassmanagers import NewPassManager

    try:
        for part in parts:
            unlocked.run(manager, part, builder)
    finally:
        # Closing it frees nothing: `ObjectRef._dispose`, which is empty, comes first among its bases. A pass manager
        # and the state of its passes take some 50 to 100 KiB.
        NewPassManager._dispose(manager)
        manager.detach()


KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
"""`i32 kernel(ptr arrays, ptr sizes, ptr arena, i64 first, i64 last)`. Calling it lets other Python threads run."""
