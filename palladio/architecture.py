r"""The architecture of Palladio: the first file to read. It holds no code; its examples are run by the tests.

A kernel is a Python function over references to blocks of arrays. This page follows one small kernel through everything
that happens to it, then shows the floors of the package, then says where to begin with a change.


The kernel
==========

It computes the length of each row of a matrix. Four rows at a time are one block; `total` is scratch memory in which
the squares are summed, column by column.

>>> import numpy as np
>>> import palladio as pl
>>> import palladio.tpu as pltpu

>>> def lengths(x, out, total):
...     total[...] = np.zeros_like(total[...])
...
...     @pl.loop(0, 3)
...     def add(column):
...         total[...] += x[:, column] * x[:, column]
...
...     out[...] = np.sqrt(total[...])

>>> call = pl.pallas_call(
...     lengths,
...     out_shape=pl.ShapeDtypeStruct((8,), np.float32),
...     grid=(2,),
...     in_specs=[pl.BlockSpec((4, 3), lambda i: (i, 0))],
...     out_specs=pl.BlockSpec((4,), lambda i: (i,)),
...     scratch_shapes=[pltpu.VMEM((4,), np.float32)],
... )
>>> x = np.tile(np.array([2, 3, 6], np.float32), (8, 1))
>>> call(x)
array([7., 7., 7., 7., 7., 7., 7., 7.], dtype=float32)


Stage 1: tracing
================

Python runs the kernel once, on stand-ins for its references and values (`palladio/trace`). Each thing that they do goes
through one door, `palladio.ir.bind.bind`, and becomes an equation: `outputs = operation inputs {parameters}`. The
result is a program. `call.program(x)` gives it without running anything; the first inputs are the grid indices.

>>> from palladio.ir.text import print_program
>>> traced = call.program(x)
>>> print(print_program(traced))
program lengths(i0:i32[], x:ref<any, f32[4,3]>, out:ref<any, f32[4]>, total:ref<vmem, f32[4]>) {
  a:f32[4] = load total
  b:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  store total, b
  loop 0:i32, 3:i32, total, x {body=program add(a:i32[], total:ref<vmem, f32[4]>, x:ref<any, f32[4,3]>) {
    b:f32[4] = load total
    c:f32[4] = load x[:, a]
    d:f32[4] = load x[:, a]
    e:f32[4] = mul c, d
    f:f32[4] = add b, e
    store total, f
    return
  }, constants=2, step=1, unroll=1}
  c:f32[4] = load total
  d:f32[4] = sqrt c
  store out, d
  return
}

What to see in it:

* Every value has a type, `f32[4]`; so has every reference, with the memory that it lies in, `ref<vmem, f32[4]>`.
* Loads and stores are equations in order. An operation says which inputs it reads and writes (its effects); passes keep
  that order.
* Control flow is an equation with a program inside, whose inputs are all that the body uses.
* Variables are objects; the letters are made for printing. `palladio.ops.parse` reads the text back as the same one.
* Every equation knows the line of the kernel that made it. Errors show that line, in tracing and while running.

`pallas_call` wraps this program into one equation, `grid_call`, which holds the grid and how each array is cut into
blocks. `pallas_call(..., debug=True)` prints it.


Stage 2: evaluation
===================

The evaluator (`palladio/ir/evaluate.py`) runs a program as it was traced, equation by equation, on NumPy arrays. Each
operation brings its own definition in NumPy, `Op.eval`. This is what a kernel *means*; whatever runs it must agree.

>>> from palladio.ir.evaluate import evaluate
>>> out, total = np.empty(4, np.float32), np.empty(4, np.float32)
>>> evaluate(traced, [np.int32(0), x[:4], out, total])
[]
>>> out
array([7., 7., 7., 7.], dtype=float32)


Stage 3: discharge
==================

The other stages are passes, programs to programs; compilers start from what they leave. The first turns references into
the values they hold. A load becomes the current value, a store a new one, a loop that writes a reference one that
carries it. The final values of the references become the outputs of the program.

>>> from palladio.passes import PASSES, run_passes
>>> discharged = run_passes(traced, [PASSES["discharge"]])
>>> print(print_program(discharged))
program lengths(i0:i32[], x:f32[4,3], out:f32[4], total:f32[4]) {
  a:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  total_1:f32[4] = loop 0:i32, 3:i32, x, a {body=program add(a:i32[], x:f32[4,3], total:f32[4]) {
    b:f32[4] = extract x[:, a]
    c:f32[4] = extract x[:, a]
    d:f32[4] = mul b, c
    e:f32[4] = add total, d
    return e
  }, constants=1, step=1, unroll=1}
  c:f32[4] = sqrt total_1
  return x, c, total_1
}

Nothing has effects any more, so equations may be moved, merged and dropped. The scratch memory is a value that goes
round the loop: a compiler may keep it in registers.


Stage 4: simplification
=======================

The remaining passes compute constants, merge equations that compute the same, and drop those that nobody needs.

>>> names = ["simplify", "merge_common_subexpressions", "remove_dead_code"]
>>> simplified = run_passes(discharged, [PASSES[name] for name in names])
>>> print(print_program(simplified))
program lengths(i0:i32[], x:f32[4,3], out:f32[4], total:f32[4]) {
  a:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  total_1:f32[4] = loop 0:i32, 3:i32, x, a {body=program add(a:i32[], x:f32[4,3], total:f32[4]) {
    b:f32[4] = extract x[:, a]
    c:f32[4] = mul b, b
    d:f32[4] = add total, c
    return d
  }, constants=1, step=1, unroll=1}
  c:f32[4] = sqrt total_1
  return x, c, total_1
}

>>> evaluate(simplified, [np.int32(0), x[:4], out, total])[1]
array([7., 7., 7., 7.], dtype=float32)

Which passes a program goes through on its way to each executor stands on one page, `palladio/driver/compile.py`. The
list of the evaluator (`reference`) is empty: the definition is not to depend on any pass. The executor `cpu`, the
default, compiles kernels through LLVM, those of several threads too; what it cannot compile it leaves to the evaluator.
It does without `discharge`: to a processor a reference is memory, and what lies there may stay there. The executor
`simulator` runs kernels of several threads and checks every access of theirs. A compiler for Hopper GPUs is planned.


Stage 5: lowering
=================

The passes of `palladio/lower` make further forms of the same IR, for executors that generate code. They say what is
known, so that no executor has to find it out again: where each buffer of a launch lies (`place`), which integers can
have which values (`fold_ranges`), which accesses cannot leave their array (`prove_inside`, written `x[:, a!]`), which
elements a stack of transforms reaches along each axis of its array (`view`, written `x.view(4)[$0, a]`).
`palladio/lower/roles.py` makes of the program of several threads one for each role that they have.

>>> from palladio.lower import prove_inside
>>> print(print_program(run_passes(traced, [*map(PASSES.get, names), prove_inside])))
program lengths(i0:i32[], x:ref<any, f32[4,3]>, out:ref<any, f32[4]>, total:ref<vmem, f32[4]>) {
  a:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  store total, a
  loop 0:i32, 3:i32, total, x {body=program add(a:i32[], total:ref<vmem, f32[4]>, x:ref<any, f32[4,3]>) {
    b:f32[4] = load total
    c:f32[4] = load x[:, a!]
    d:f32[4] = mul c, c
    e:f32[4] = add b, d
    store total, e
    return
  }, constants=2, step=1, unroll=1}
  b:f32[4] = load total
  c:f32[4] = sqrt b
  store out, c
  return
}

The block maps of a grid get such marks too: two blocks of four rows lie inside eight rows, and no code guards them.


Stage 6: machine code
=====================

In the compiler for CPUs an array is not memory but a way to compute an element, a `LazyArray`
(`palladio/cpu/emit/lazy_array.py`). Each operation has a rule (`palladio/cpu/rule_table.py`), from tiles to a tile;
nothing is computed until a store, a reduction or a product asks for the elements, in vectors. What they emit is the
text of one LLVM function (`palladio/cpu/lower.py`), which runs the steps of a grid from one number to another. It
becomes machine code or is found on disk (`palladio/cpu/runtime`), and worker threads take turns at calling it with the
next steps (`palladio/cpu/engine.py`). `palladio show --stage llvm` prints it.

>>> from palladio.cpu.rule_table import RULES
>>> [name in RULES for name in ("load", "sqrt", "loop", "sort")]
[True, True, True, True]


Kernels of several threads
==========================

`plgpu.kernel` runs its body in every thread of a mesh, all of them at once. A thread is a warpgroup of a block here.
The copy below goes on beside the thread that started it, until a barrier says that the bytes have landed.

>>> import palladio.gpu as plgpu

>>> def double(x, out, tile, full):
...     block = pl.axis_index("block")
...     plgpu.copy_gmem_to_smem(x.at[pl.ds(4 * block, 4)], tile, full)
...     plgpu.barrier_wait(full)
...     out[pl.ds(4 * block, 4)] = 2 * tile[...]

>>> doubled = plgpu.kernel(
...     double,
...     pl.ShapeDtypeStruct((8,), np.float32),
...     grid=(2,),
...     grid_names=("block",),
...     scratch_types=[plgpu.SMEM((4,), np.float32), plgpu.Barrier()],
... )
>>> doubled(np.arange(8, dtype=np.float32))
array([ 0.,  2.,  4.,  6.,  8., 10., 12., 14.], dtype=float32)

The body is one program again; its first inputs are the indices along the axes of the mesh. What starts something beside
the program, or waits for it, is an operation with the effect `sync`: no pass moves an access across it. One equation,
`launch`, holds the programs and their meshes.

>>> first, _, equations = print_program(doubled.program(np.zeros(8, np.float32))).partition("\n")
>>> first[:94]
'program double(block:i32[], x:ref<gmem, f32[8]>, out:ref<gmem, f32[8]>, tile:ref<smem, f32[4]>'
>>> print(equations)
  a:i32[] = mul 4:i32, block
  copy_gmem_to_smem x[a:+4], tile, full, True:bool {collective=(), fill='zeros'}
  barrier_wait full
  b:f32[4] = load tile
  c:f32[4] = mul 2.0:f32, b
  d:i32[] = mul 4:i32, block
  store out[d:+4], c
  return
}

A program alone does not say when the others take their turns; the machine does (`palladio/machine`). It runs each
thread's program as a generator that stops where others may go first, and keeps copies and products under way as things
that may complete at any moment. The evaluator runs launches on a machine that completes them at once and lets threads
run in turn. The simulator is the same machine with a schedule to try and a checker that keeps, for every thread and
every piece of memory, what is known to have come before: it names two accesses that nothing orders, although this run
did not trip over them.


The floors
==========

A module imports only from lower floors or from its own package; imports inside functions count. A test holds it.

    15  palladio/demo      a mixture of experts that learns handwritten digits
    14  palladio/cli       the command line: `palladio show` prints what a kernel becomes
    13  palladio/interop   the library as operators of PyTorch, functions of JAX, experts of Transformers' models
        palladio/compat    what `import jax` gives a kernel file that runs here as it stands
    12  palladio/library   matmul, softmax, attention, grouped matmul, and `hopper`: ordinary user code
    11  palladio/numpy     the array functions a kernel may call, with NumPy's names
        palladio/tpu       scalar prefetch, memory spaces, masked access, compiler parameters
        palladio/gpu       masked access, atomics; threads, barriers, asynchronous copies, the tensor cores
    10  palladio/call      pallas_call, kernel, mpmd_map, jit: the user's calls
     9  palladio/driver    executors and the choice among them, the pipeline of each, the cache of prepared calls
     8  palladio/cpu       kernels compiled for the host through LLVM
        palladio/hopper    kernels compiled for Hopper GPUs through CUDA C++
        palladio/machine   threads and asynchronous operations: schedules, checks, findings, timelines
     7  palladio/lower     further forms of the IR that every executor of kernels shares: placement, views, ranges
     6  palladio/passes    programs to programs, one pass a file
        palladio/pipeline  BlockSpec, GridSpec and block maps; emit_pipeline inside a kernel
        palladio/lax       array functions with the names and the strictness of jax.lax
     5  palladio/trace     from functions to programs: traced values, references, control flow
     4  palladio/array     functions on arrays, traced or not, with NumPy's names and JAX's promotion
     3  palladio/ops       the closed set of operations, one record each, one file a family
     2  palladio/ir        Var, Eqn, Program, Op; forming, verifying, printing, reading, evaluating
     1  palladio/types     dtypes and their promotion, array and reference types, transforms, effects
     0  palladio/base      errors and their text, source lines, environment variables, pytrees

`palladio/__init__.py` stands above them all and names what users need.


Where to begin
==============

ADDING.md has a recipe for each, step by step. In short, to

* add an operation: read `palladio/ir/core.py`, what a record holds; then a family that is like it, such as
  `palladio/ops/arrays/math.py`. It gets a file in `tests/filetests`, and `tests/architecture` names what is missing.
* add a pass: read `palladio/passes/pipeline.py`, then the shortest one, `palladio/passes/common_subexpressions.py`.
* add an executor: read `palladio/driver/executors.py` and `palladio/driver/compile.py`; one line joins the file tests.
* change what an operation becomes on the CPU: read `palladio/cpu/emit/lazy_array.py`, then its family, which
  `palladio/cpu/rule_table.py` names.
* add an array function: read `palladio/array/functions/math.py`; most are a few lines over operations that are there.
* write a kernel: read `docs/tutorial/1-first-kernel.md`, then `palladio/library`.
* understand an error: `palladio/base/errors.py` says how they are made and where they get their source line.
"""
