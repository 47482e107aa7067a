r"""The architecture of Palladio: the first file to read. It holds no code; its examples are run by the tests.

A kernel is a Python function over references to blocks of arrays. This page follows one small kernel through all
stages, then shows the floors of the package, then says where to begin with a change.


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

Python runs the kernel once, on stand-ins for its references and values (`palladio/trace`). Each operation on them goes
through one function, `palladio.ir.bind.bind`, and becomes an equation: `outputs = operation inputs {parameters}`. The
result is a program. `call.program(x)` gives it without running anything; the first inputs are the grid indices.

>>> from palladio.ir.text import print_program
>>> traced = call.program(x)
>>> print(print_program(traced))
program lengths(i0:i32[], x:ref<any, f32[4,3]>, out:ref<any, f32[4]>, total:ref<vmem, f32[4]>) {
  a:f32[4] = load total
  b:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  store total, b
  loop 0:i32, 3:i32, total, x {body=program add(column:i32[], total:ref<vmem, f32[4]>, x:ref<any, f32[4,3]>) {
    a:f32[4] = load total
    b:f32[4] = load x[:, column]
    c:f32[4] = load x[:, column]
    d:f32[4] = mul b, c
    e:f32[4] = add a, d
    store total, e
    return
  }, constants=2, step=1, unroll=1}
  c:f32[4] = load total
  d:f32[4] = sqrt c
  store out, d
  return
}

Points to note:

* Every value has a type, `f32[4]`; so has every reference, with its memory space, `ref<vmem, f32[4]>`.
* Loads and stores are equations in order. An operation says which inputs it reads and writes (its effects); passes keep
  that order.
* Control flow is an equation with a program inside; its inputs are all values that the body uses.
* Variables are objects; the letters are made for printing. `palladio.ops.parse` parses the text back to the same
  program.
* Every equation knows the line of the kernel that made it. Errors show that line, in tracing and while running.

`pallas_call` wraps this program into one equation, `grid_call`, which holds the grid and the division of each array
into blocks. `pallas_call(..., debug=True)` prints it.


Stage 2: evaluation
===================

The evaluator (`palladio/ir/evaluate.py`) runs a program as it was traced, equation by equation, on NumPy arrays. Each
operation brings its own definition in NumPy, `Op.eval`. This defines the meaning of a kernel; every executor must agree
with it.

>>> from palladio.ir.evaluate import evaluate
>>> out, total = np.empty(4, np.float32), np.empty(4, np.float32)
>>> evaluate(traced, [np.int32(0), x[:4], out, total])
[]
>>> out
array([7., 7., 7., 7.], dtype=float32)


Stage 3: clean-up
=================

The other stages are passes from program to program. The first ones fold constants, merge common subexpressions,
and remove dead code. Loads and stores stay in order: the two loads of a column become one, since nothing
is stored between them.

>>> from palladio.passes import PASSES, run_passes
>>> from palladio.driver.compile import CLEAN
>>> clean = run_passes(traced, CLEAN)
>>> print(print_program(clean))
program lengths(i0:i32[], x:ref<any, f32[4,3]>, out:ref<any, f32[4]>, total:ref<vmem, f32[4]>) {
  a:f32[4] = broadcast 0.0:f32 {shape=(4,), axes=()}
  store total, a
  loop 0:i32, 3:i32, total, x {body=program add(column:i32[], total:ref<vmem, f32[4]>, x:ref<any, f32[4,3]>) {
    a:f32[4] = load total
    b:f32[4] = load x[:, column]
    c:f32[4] = mul b, b
    d:f32[4] = add a, c
    store total, d
    return
  }, constants=2, step=1, unroll=1}
  b:f32[4] = load total
  c:f32[4] = sqrt b
  store out, c
  return
}

The whole way to each executor stands in one module, `palladio/driver/compile.py`. The pipeline of the evaluator
(`reference`) is empty: the definition must not depend on any pass. The executor `cpu`, the default, compiles kernels
through LLVM, those of several threads too; kernels that it cannot compile run on the evaluator. The executor
`simulator` runs kernels of several threads and checks all their accesses. `hopper-twin` runs the code generated for
Hopper GPUs, without a GPU.


Stage 4: lowered forms
======================

The passes of `palladio/lower` make further forms of the same IR. A form records facts and decisions, so that
executors need not derive them again. Each has a table of rules, with one reason per row
(`palladio/lower/forms.py`), prints, parses back, and still runs on the evaluator. `palladio show --stage` prints each
for a whole call.

Ranges: an integer with only one possible value is a constant. `fold_ranges` uses that a grid index is at least 0 and
below the size of its axis, and so removes the correction of a floor division for negative numbers.

>>> from palladio.lower import fold_ranges, prove_inside
>>> def halves(out):
...     row = pl.program_id(0)
...     out[0] = row // 2

>>> index = pl.pallas_call(
...     halves, out_shape=pl.ShapeDtypeStruct((8,), np.int32), grid=(8,), out_specs=pl.BlockSpec((1,), lambda i: (i,))
... )
>>> print(print_program(run_passes(index.program(), CLEAN)))
program halves(i0:i32[], out:ref<any, i32[1]>) {
  a:i32[] = div i0, 2:i32
  b:i32[] = rem i0, 2:i32
  c:i32[] = sign b
  d:bool[] = ne c, 1:i32
  e:bool[] = ne b, 0:i32
  f:bool[] = bitwise_and d, e
  g:i32[] = sub a, 1:i32
  h:i32[] = select f, g, a
  store out[0], h
  return
}

The kernel alone does not contain the size of its grid, so the pass needs the whole call.

>>> from palladio.driver.capture import prepared_programs
>>> def whole(call, *arguments):
...     with prepared_programs() as programs:
...         pl.jit(call)(*arguments)
...     return programs[0]

>>> (eqn,) = run_passes(whole(index), [*CLEAN, fold_ranges, *CLEAN]).eqns
>>> print(print_program(eqn.kernel))
program halves(i0:i32[], out:ref<any, i32[1]>) {
  a:i32[] = div i0, 2:i32
  store out[0], a
  return
}

Slices: an index by an array that counts along an axis is a slice. `slice_indices` finds those of kernels in the style
of Triton, whose elements the CPU then accesses in vectors.

>>> import palladio.numpy as jnp
>>> from palladio.lower import slice_indices
>>> def doubled(x, out):
...     rows = pl.program_id(0) * 4 + jnp.arange(4)
...     out[rows] = x[rows] * 2

>>> double = pl.pallas_call(doubled, out_shape=pl.ShapeDtypeStruct((8,), np.float32), grid=(2,))
>>> (eqn,) = run_passes(whole(double, np.ones(8, np.float32)), [*CLEAN, slice_indices, *CLEAN]).eqns
>>> print(print_program(eqn.kernel))
program doubled(i0:i32[], x:ref<any, f32[8]>, out:ref<any, f32[8]>) {
  a:i32[] = mul i0, 4:i32
  b:f32[4] = load x[a:+4]
  c:f32[4] = mul b, 2.0:f32
  store out[a:+4], c
  return
}

Inside: an access that cannot leave its array is marked, `x[:, column!]`, and gets no guard. `prove_inside` marks the
column of the example, the index of a loop over three columns, and its blocks: two of four rows lie inside eight rows.

>>> whole_call = whole(call, x)
>>> (eqn,) = run_passes(whole_call, [*CLEAN, prove_inside]).eqns
>>> print(print_program(eqn.kernel).splitlines()[5].strip())
b:f32[4] = load x[:, column!]
>>> [block.inside for block in (*eqn.grid.inputs, *eqn.grid.outputs)]
[(True, True), (True,)]

Schedule: a grid as loops. Its second block does not need the first one, so the one axis is a parallel loop, whose
points are called tasks; a kernel that carries state in scratch would have it among its `steps`, which run in
order. Blocks are views of their arrays, since all lie inside; otherwise they would be guarded. The output begins
uninitialised, since the first access to each block stores it whole.

>>> from palladio.lower import schedule
>>> (eqn,) = run_passes(whole_call, [*CLEAN, prove_inside, schedule]).eqns
>>> eqn.grid.schedule.tasks, eqn.grid.schedule.steps
((0,), ())
>>> for each in (*eqn.grid.schedule.blocks, *eqn.grid.schedule.starts):
...     print(each)
BlockView(access='view', write_back=False)
BlockView(access='view', write_back=True)
OutputStart(kind='stored', once=True, marks=None)

View: the elements that a stack of transforms reaches, along each axis of its array.

>>> from palladio.lower import view
>>> print(print_program(run_passes(clean, [prove_inside, view])).splitlines()[5].strip())
b:f32[4] = load x.view(4)[$0, column]

Fuse: a matrix product and the addition to it are one operation, whose sums begin with the other operand; a store of
what a choice changes leaves the rest of its block alone.

>>> from palladio.lower import fuse
>>> def product(x, y, out):
...     out[...] += x[...] @ y[...]

>>> square = np.zeros((8, 8), np.float32)
>>> adding = pl.pallas_call(product, out_shape=pl.ShapeDtypeStruct((8, 8), np.float32))
>>> (eqn,) = run_passes(whole(adding, square, square), [*CLEAN, fuse]).eqns
>>> print(print_program(eqn.kernel).splitlines()[4].strip())
d:f32[8,8] = dot_accumulate a, b, c {contracting=((1,), (0,)), batch=((), ())}

Keep: an array is computed where it is used, in the loop of what uses it, except for those that `keep` and
`tee` write to memory. In the first example nothing is kept; in the next one the weights are, since two operations use
them: `tee` writes them while the first one, a reduction, goes through them; to the output, where the quotients replace
them.

>>> from palladio.lower import keep_arrays
>>> def normalised(x, out):
...     weights = np.exp(x[...])
...     out[...] = weights / np.sum(weights)

>>> softmax = pl.pallas_call(normalised, out_shape=pl.ShapeDtypeStruct((4,), np.float32))
>>> (eqn,) = run_passes(whole(softmax, np.zeros(4, np.float32)), [*CLEAN, fuse, keep_arrays]).eqns
>>> print(print_program(eqn.kernel))
program normalised(x:ref<any, f32[4]>, out:ref<any, f32[4]>) {
  a:f32[4] = load x
  b:f32[4] = exp a
  c:f32[4], d:f32[4] = tee b, out
  e:f32[] = reduce_sum c {axes=(0,)}
  f:f32[4] = div d, e
  store out, f
  return
}

Initialise: an output that the kernel does not store whole begins without values, and the schedule gives its blocks
marks. `initialize` stands before the first access to a block and gives values to what nothing has stored.

>>> from palladio.lower import initialize
>>> def second(out):
...     out[1] = np.float32(2)

>>> part = pl.pallas_call(
...     second, out_shape=pl.ShapeDtypeStruct((4,), np.float32), grid=(2,), out_specs=pl.BlockSpec((2,), lambda i: (i,))
... )
>>> (eqn,) = run_passes(whole(part), [*CLEAN, schedule, initialize]).eqns
>>> print(print_program(eqn.kernel))
program second(i0:i32[], out:ref<any, f32[2]>) {
  initialize out {stored=False}
  store out[1], 2.0:f32
  return
}

Two more forms apply to launches, described below: the placement of each buffer, and a program for each role.

Not every executor takes every form. The simulator runs what was traced: its findings are about the accesses that the
author wrote, and a pass that merges loads would change which there are. It shares what the forms are made of:
placements and arrival counts (`palladio/lower/place.py`), and views (`palladio/lower/views.py`), over integers.

The compiler for Hopper takes the schedule (tasks are blocks of a launch, steps are loops inside of one), roles, views
and the fused form. It does not take the last four, of which each says how a CPU goes through memory:

* `keep_arrays`: on a GPU an array is in the registers of its threads wherever it is used, and computed once.
* `bound_zeros`, `join_products`: there each thread has its own elements, and goes through no others; tensor cores take
  whole tiles, and add to accumulators that stay in registers.
* `initialize`: outputs of a GPU begin as their memory is, which the simulator reports when it is read.


Stage 5: machine code
=====================

In the compiler for CPUs an array is not memory but an expression for its elements, a `LazyArray`
(`palladio/cpu/emit/lazy_array.py`). Each operation has a rule (`palladio/cpu/rule_table.py`), from lazy arrays to a
lazy array; nothing is computed until a store, a reduction, a product or a `keep` needs the elements, in vectors. A rule
copies only what its own loops need: packed panels of a product, the operands of a sort. The rules emit the text of one
LLVM function (`palladio/cpu/lower.py`), which runs a range of the steps of a grid. It is compiled to machine code or
found on disk (`palladio/cpu/runtime`), and worker threads take turns at calling it with the next steps
(`palladio/cpu/engine.py`). `palladio show --stage llvm` prints it.

>>> from palladio.cpu.rule_table import RULES
>>> [name in RULES for name in ("load", "sqrt", "loop", "sort")]
[True, True, True, True]


Kernels of several threads
==========================

`plgpu.kernel` runs its body in every thread of a mesh, all of them at once. Here a thread is a warpgroup of a block.
The copy below runs asynchronously to the thread that started it, until a barrier signals that the bytes have landed.

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

The body is one program again; its first inputs are the indices along the axes of the mesh. Issuing an asynchronous
operation, or waiting for one, is an operation with the effect `sync`: no pass moves an access across it. One equation,
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

Place: the memory and the offset in bytes of each buffer of a launch, and the arrivals that complete a barrier.

>>> from palladio.lower import place, split_roles
>>> (eqn,) = run_passes(whole(doubled, np.zeros(8, np.float32)), [place]).eqns
>>> for each in eqn.launch.placements:
...     print(each.scope, each.bytes, each.alignment, each.offset, each.arrivals)
block 16 128 0 None
block 8 8 128 1

Roles: threads branch on their index. `split_roles` writes the program as one branch between programs
without such branches, each for the warpgroups that run it. On a GPU they become the branches of the kernel.

>>> def two_roles(out):
...     me = pl.axis_index("warpgroup")
...
...     @pl.when(me == 0)
...     def first():
...         out[me] = np.float32(7)
...
...     @pl.when(me > 0)
...     def others():
...         out[me] = np.float32(8)

>>> roles = plgpu.kernel(
...     two_roles, pl.ShapeDtypeStruct((2,), np.float32), num_threads=2, thread_name="warpgroup"
... )
>>> (eqn,) = run_passes(whole(roles), [*CLEAN, split_roles]).eqns
>>> print(print_program(eqn.programs[0]))
program two_roles(warpgroup:i32[], out:ref<gmem, f32[2]>) {
  a:bool[] = eq warpgroup, 1:i32
  b:i32[] = select a, 1:i32, 0:i32
  cond b, warpgroup, out {branches=(program two_roles(warpgroup:i32[], out:ref<gmem, f32[2]>) {
    store out[0], 7.0:f32
    return
  }, program two_roles(warpgroup:i32[], out:ref<gmem, f32[2]>) {
    store out[1], 8.0:f32
    return
  })}
  return
}

A program does not contain the interleaving of threads; the machine determines it (`palladio/machine`). It runs each
thread's program as a generator that yields where others may run first, and keeps copies and products in flight as async
ops that may complete at any moment. The evaluator runs launches on a machine that completes them at once and lets
threads run in turn. The simulator is the same machine with a given schedule and a checker that keeps, for every thread
and every piece of memory, the happens-before order: it reports two unordered accesses even if this run was not affected
by them.


The floors
==========

A module imports only from lower floors or from its own package; imports inside functions count. A test holds it.

    15  palladio/demo      a mixture of experts that learns handwritten digits
    14  palladio/cli       the command line: `palladio show` prints the compiled forms of a kernel
    13  palladio/interop   the library as operators of PyTorch, functions of JAX, experts of Transformers' models
        palladio/compat    the modules that `import jax` gives kernel files that run here unmodified
    12  palladio/library   matmul, softmax, attention, grouped matmul, and `hopper`: ordinary user code
    11  palladio/numpy     the array functions a kernel may call, with NumPy's names
        palladio/nn        activations, with the names of jax.nn
        palladio/tpu       scalar prefetch, memory spaces, masked access, compiler parameters
        palladio/gpu       masked access, atomics; threads, barriers, asynchronous copies, the tensor cores
    10  palladio/call      pallas_call, kernel, mpmd_map, jit: the user's calls
     9  palladio/driver    executors and the choice among them, the pipeline of each, the cache of prepared calls
     8  palladio/cpu       kernels compiled for the host through LLVM
        palladio/hopper    kernels compiled for Hopper GPUs through CUDA C++
        palladio/machine   threads and asynchronous operations: schedules, checks, findings, timelines
     7  palladio/lower     further forms of the IR that executors share: ranges, schedules, views, fusion, roles
     6  palladio/passes    passes from program to program, one per file
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

* add an operation: read `palladio/ir/core.py` for the fields of a record; then a similar family, e.g.
  `palladio/ops/arrays/math.py`. It gets a file in `tests/filetests`, and `tests/architecture` reports what is missing.
* add a pass: read `palladio/passes/pipeline.py`, then the shortest one, `palladio/passes/common_subexpressions.py`.
* add an executor: read `palladio/driver/executors.py` and `palladio/driver/compile.py`; one line joins the file tests.
* change the code of an operation on the CPU: read `palladio/cpu/emit/lazy_array.py`, then its family, which
  `palladio/cpu/rule_table.py` names.
* add an array function: read `palladio/array/functions/math.py`; most are a few lines over existing operations.
* write a kernel: read `docs/tutorial/1-first-kernel.md`, then `palladio/library`.
* understand an error: `palladio/base/errors.py` explains how they are built and where they get their source line.
"""
