"""The functions for sparse cores, each against NumPy; and what the sub-cores of one core do together."""

from __future__ import annotations

import collections
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
import palladio.tpu.sparse_core as plsc
from tests.errors.shown import shows

EXECUTORS = (None, "simulator")
LANES = 16
X = np.array([5, 3, 5, -2, 7, 3, 3, 9, -2, 0, 5, 1, 1, 8, 2, 4], np.int32)
MASK = X % 2 == 1


def computed(function: Any, *args: np.ndarray, out: Any, executor: str | None) -> Any:
    """What a kernel stores that applies a function to whole inputs; `out` says shapes and dtypes."""
    outs = out if isinstance(out, tuple) else (out,)

    def kernel(*refs: Any) -> None:
        found = function(*(ref[...] for ref in refs[: len(args)]))
        for ref, value in zip(refs[len(args) :], found if isinstance(found, tuple) else (found,), strict=True):
            ref[...] = value

    return pl.pallas_call(kernel, outs if isinstance(out, tuple) else out, interpret=executor)(*args)


def like(x: np.ndarray, dtype: Any = None) -> pl.ShapeDtypeStruct:
    return pl.ShapeDtypeStruct(x.shape, dtype or x.dtype)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_running_sums_and_extrema_are_of_the_elements_under_the_mask(executor: str | None) -> None:
    got = computed(lambda x, m: plsc.cumsum(x, mask=m), X, MASK, out=like(X), executor=executor)
    np.testing.assert_array_equal(got, np.cumsum(np.where(MASK, X, 0)))
    odd = np.array([2, 4, 3, 1, 6, 7, 5, 0], np.int32)
    got = computed(lambda x: plsc.cummax(x, mask=x % 2 == 1), odd, out=like(odd), executor=executor)
    np.testing.assert_array_equal(got, [2, 4, 3, 3, 3, 7, 7, 7])
    got = computed(lambda x: plsc.cummin(x, mask=x % 2 == 1), odd, out=like(odd), executor=executor)
    np.testing.assert_array_equal(got, [2, 4, 3, 1, 1, 1, 1, 1])
    got = computed(plsc.cummax, X, out=like(X), executor=executor)
    np.testing.assert_array_equal(got, np.maximum.accumulate(X))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_elements_are_counted_up_to_each_place(executor: str | None) -> None:
    counts, last = computed(plsc.scan_count, X, out=(like(X), like(X, np.bool_)), executor=executor)
    seen: collections.Counter[int] = collections.Counter()
    expected = []
    for each in X.tolist():
        seen[each] += 1
        expected.append(seen[each])
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(last, [each not in X[place + 1 :] for place, each in enumerate(X)])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("descending", [False, True])
def test_pairs_are_sorted_and_those_without_the_mask_come_last(executor: str | None, descending: bool) -> None:
    values = np.arange(LANES, dtype=np.int32)
    keys, found, mask = computed(
        lambda k, v, m: plsc.sort_key_val(k, v, mask=m, descending=descending),
        X,
        values,
        MASK,
        out=(like(X), like(X), like(MASK)),
        executor=executor,
    )
    count = MASK.sum()
    np.testing.assert_array_equal(mask, values < count)
    np.testing.assert_array_equal(keys[:count], sorted(X[MASK], reverse=descending))
    np.testing.assert_array_equal(found[count:], values[~MASK])
    np.testing.assert_array_equal(X[found], keys)
    np.testing.assert_array_equal(np.sort(found), values)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", list(plsc.PackFormat))
def test_what_was_packed_is_unpacked(executor: str | None, form: plsc.PackFormat) -> None:
    a, b = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) + 100
    shape = (8, 2) if form is plsc.PackFormat.COMPRESSED else (16,)
    packed = computed(
        lambda a, b: plsc.pack(a, b, format=form),
        a,
        b,
        out=pl.ShapeDtypeStruct(shape, jnp.bfloat16),
        executor=executor,
    )
    np.testing.assert_array_equal(packed.astype(np.float32).ravel(), np.stack([a, b], 1).ravel())
    again = computed(lambda ab: plsc.unpack(ab, format=form), packed, out=(like(a), like(b)), executor=executor)
    np.testing.assert_array_equal(again, [a, b])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_true_elements_are_counted_and_the_first_one_found(executor: str | None) -> None:
    out = pl.ShapeDtypeStruct((LANES // 4,), np.int32)
    got = computed(lambda m: plsc.all_reduce_population_count(m, reduce=4), MASK, out=out, executor=executor)
    np.testing.assert_array_equal(got, [MASK.sum()] * 4)
    for mask in (MASK, X == 9, np.zeros_like(MASK)):
        got = computed(plsc.all_reduce_ffs, mask, out=like(X), executor=executor)
        np.testing.assert_array_equal(got, np.full(LANES, mask.argmax() if mask.any() else LANES))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_last_axis_takes_the_change_of_width(executor: str | None) -> None:
    half = pl.ShapeDtypeStruct((2 * LANES,), jnp.bfloat16)
    got = computed(lambda x: plsc.bitcast(x, jnp.bfloat16), X, out=half, executor=executor)
    np.testing.assert_array_equal(got.view(np.uint16), X.view(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_elements_are_gathered_scattered_and_added(executor: str | None) -> None:
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    rows, columns = np.array([0, 2, 1, 2], np.int32), np.array([3, 0, 1, 0], np.int32)
    mask = np.array([True, True, False, True])

    def kernel(table: Any, rows: Any, columns: Any, mask: Any, gathered: Any, written: Any, added: Any) -> None:
        places = [rows[...], columns[...]]
        gathered[...] = plsc.load_gather(table, places)
        written[...] = added[...] = jnp.zeros((3, 4), jnp.int32)
        plsc.store_scatter(written, places, jnp.arange(1, 5, dtype=jnp.int32), mask=mask[...])
        plsc.addupdate_scatter(added, places, 10 ** jnp.arange(4, dtype=jnp.int32), mask=mask[...])
        plsc.addupdate(added, jnp.full((3, 4), 5, jnp.int32))

    call = pl.pallas_call(kernel, (like(rows), like(table), like(table)), interpret=executor)
    gathered, written, added = call(table, rows, columns, mask)
    np.testing.assert_array_equal(gathered, table[rows, columns])
    expected = np.zeros((3, 4), np.int32)
    expected[0, 3], expected[2, 0] = 1, 4
    np.testing.assert_array_equal(written, expected)
    expected[0, 3], expected[2, 0] = 1, 1010
    np.testing.assert_array_equal(added, expected + 5)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_elements_are_compressed_and_expanded(executor: str | None) -> None:
    def kernel(x: Any, packed: Any, added: Any, spread: Any) -> None:
        mask = x[...] % 2 == 1
        packed[...] = added[...] = jnp.full((LANES,), -1, jnp.int32)
        plsc.store_compressed(packed, x[...], mask=mask)
        plsc.addupdate_compressed(added, x[...], mask=mask)
        spread[...] = jnp.where(mask, plsc.load_expanded(packed, mask=mask), 0)

    packed, added, spread = pl.pallas_call(kernel, (like(X),) * 3, interpret=executor)(X)
    expected = np.full(LANES, -1, np.int32)
    expected[: MASK.sum()] = X[MASK]
    np.testing.assert_array_equal(packed, expected)
    expected[: MASK.sum()] -= 1
    np.testing.assert_array_equal(added, expected)
    np.testing.assert_array_equal(spread, np.where(MASK, X, 0))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_parallel_loop_has_steps_and_a_carry(executor: str | None) -> None:
    def kernel(x: Any, out: Any, total: Any) -> None:
        @plsc.parallel_loop(0, LANES, step=4)
        def _(i: Any) -> None:
            out[pl.ds(i, 4)] = x[pl.ds(i, 4)] + i

        @plsc.parallel_loop(0, LANES, carry=jnp.int32(0))
        def found(i: Any, carry: Any) -> Any:
            return carry + x[i]

        total[...] = found[None]

    out, total = pl.pallas_call(kernel, (like(X), pl.ShapeDtypeStruct((1,), np.int32)), interpret=executor)(X)
    np.testing.assert_array_equal(out, X + np.arange(LANES) // 4 * 4)
    assert total == X.sum()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sub_cores_wait_for_each_other_again_and_again(executor: str | None) -> None:
    cores, subcores, rounds = 2, 3, 4
    mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=cores, num_subcores=subcores)

    @pl.kernel(
        out_type=pl.ShapeDtypeStruct((cores, subcores, LANES), np.int32),
        mesh=mesh,
        interpret=executor,
        scratch_types=[pltpu.VMEM_SHARED((subcores, LANES), np.int32), pltpu.VMEM((LANES,), np.int32)],
    )
    def kernel(out: Any, shared: Any, own: Any) -> None:
        core, me = pl.axis_index("c"), pl.axis_index("s")
        own[...] = jnp.full((LANES,), me + 10 * core, jnp.int32)
        for _ in range(rounds):
            pltpu.sync_copy(own, shared.at[me])
            plsc.subcore_barrier()
            pltpu.sync_copy(shared.at[(me + 1) % subcores], own)
            plsc.subcore_barrier()
        pltpu.sync_copy(own, out.at[core, me])

    got = kernel()
    expected = 10 * np.arange(cores)[:, None] + (np.arange(subcores) + rounds) % subcores
    np.testing.assert_array_equal(got[..., 0], expected)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_sub_core_adds_to_a_number_of_another(executor: str | None) -> None:
    subcores = 4
    mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=1, num_subcores=subcores)

    @pl.kernel(
        out_type=pl.ShapeDtypeStruct((2, subcores, LANES), np.int32),
        mesh=mesh,
        interpret=executor,
        scratch_types=[pltpu.SMEM((1,), np.int32), pltpu.VMEM((2, LANES), np.int32)],
    )
    def kernel(out: Any, counter: Any, own: Any) -> None:
        me = pl.axis_index("s")
        counter[0] = 100 * me
        plsc.subcore_barrier()
        before = plsc.fetch_and_add(counter, 5 + me, subcore_id=(me + 1) % subcores)
        plsc.subcore_barrier()
        own[0] = jnp.full((LANES,), before, jnp.int32)
        own[1] = jnp.full((LANES,), counter[0], jnp.int32)
        pltpu.sync_copy(own, out.at[:, me])

    before, after = kernel()[..., 0]
    number = np.arange(subcores)
    np.testing.assert_array_equal(before, (number + 1) % subcores * 100)
    np.testing.assert_array_equal(after, number * 100 + 5 + (number - 1) % subcores)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_copies_of_sub_cores_add_to_shared_memory(executor: str | None) -> None:
    places, subcores = np.array([2, 0, 2, 1], np.int32), 3
    x = np.arange(subcores * 4, dtype=np.float32).reshape(subcores, 4)

    @pl.kernel(
        out_type=pl.ShapeDtypeStruct((4,), np.float32),
        mesh=plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=1, num_subcores=subcores),
        interpret=executor,
        scratch_types=[
            pltpu.VMEM_SHARED((4,), np.float32),
            pltpu.VMEM((4,), np.float32),
            pltpu.VMEM((4,), np.int32),
        ],
    )
    def kernel(x: Any, places: Any, out: Any, shared: Any, own: Any, chosen: Any) -> None:
        me = pl.axis_index("s")
        pltpu.sync_copy((x.at[me], places), (own, chosen))

        @pl.when(me == 0)
        def _() -> None:
            pltpu.sync_copy(own, shared)

        plsc.subcore_barrier()
        pltpu.sync_copy(own, shared.at[chosen], add=True)
        plsc.subcore_barrier()

        @pl.when(me == 0)
        def _() -> None:
            pltpu.sync_copy(shared, out)

    expected = x[0].copy()
    for row in x:
        np.add.at(expected, places, row)
    np.testing.assert_array_equal(kernel(x, places), expected)


def test_a_barrier_of_sub_cores_needs_some() -> None:
    def kernel(out: Any) -> None:
        plsc.subcore_barrier()

    with shows(
        ValueError,
        """
        only the programs of a VectorSubcoreMesh have sub-cores
          test_sparse_core.py:N, in kernel
            plsc.subcore_barrier()
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((1,), np.int32))()


def test_one_index_vector_for_each_axis() -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = plsc.load_gather(x, [jnp.arange(4)])

    with shows(
        ValueError,
        """
        indices: one index vector for each axis of the reference
          expected: 2
          got:      1
          test_sparse_core.py:N, in kernel
            out[...] = plsc.load_gather(x, [jnp.arange(4)])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.float32))(np.ones((4, 4), np.float32))


@pytest.mark.parametrize("executor", [None, "reference", "simulator"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("by_reference", [True, False])
def test_copies_leave_out_an_ignored_index(executor: str | None, side: str, by_reference: bool) -> None:
    def kernel(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.full(o_ref.shape, -7, o_ref.dtype)
        indices = plsc.Indices(at_ref if by_reference else at_ref[...], ignored_value=4)
        if side == "source":
            pltpu.sync_copy(x_ref.at[indices], o_ref)
        else:
            pltpu.sync_copy(x_ref, o_ref.at[indices])

    x = np.arange(16, dtype=np.int32).reshape(8, 2)
    at = np.array([3, 4, 0, 1, 4, 7, 2, 5], np.int32)
    found = pl.pallas_call(kernel, like(x), interpret=executor)(x, at)
    expected = np.full_like(x, -7)
    for n, index in enumerate(at):
        if index != 4:
            source, target = (index, n) if side == "source" else (n, index)
            expected[target] = x[source]
    np.testing.assert_array_equal(found, expected)


def test_indices_without_an_ignored_one_are_those_of_a_reference() -> None:
    def kernel(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        pltpu.sync_copy(x_ref.at[plsc.Indices(at_ref)], o_ref)

    np.testing.assert_array_equal(pl.pallas_call(kernel, like(X))(X, X % 16), X[X % 16])


def used(use: Any) -> Any:
    def kernel(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        use(x_ref, plsc.Indices(at_ref[...], ignored_value=4), o_ref)

    return pl.pallas_call(kernel, like(X))(X, X)


def test_parts_without_ignored_indices_are_only_copied() -> None:
    with shows(
        TypeError,
        """
        parts at indices of which some are ignored are there for copies
          got:      parts at indices other than 4 of a reference to i32[16] in any
          hint:     copy them: pltpu.sync_copy(parts, buffer)
          test_sparse_core.py:N, in <lambda>
            used(lambda x, indices, o: x.at[indices][...])
                                       ^^^^^^^^^^^^^^^^^^
        """,
    ):
        used(lambda x, indices, o: x.at[indices][...])
    with shows(
        TypeError,
        """
        indices: indices of which some are ignored are a vector of integers along the first axis
          got:      i32[2,2] for a reference to i32[16] in any
          test_sparse_core.py:N, in <lambda>
            used(lambda x, indices, o: x.at[plsc.Indices(np.zeros((2, 2), np.int32), 4)])
                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        used(lambda x, indices, o: x.at[plsc.Indices(np.zeros((2, 2), np.int32), 4)])
    with shows(
        NotImplementedError,
        """
        indices with ignored ones are on one side of a copy within a core
          got:      copy of parts at indices other than 4 of a reference to i32[16] in any to parts at indices other than 4 of a reference to i32[16] in any
          test_sparse_core.py:N, in <lambda>
            used(lambda x, indices, o: pltpu.sync_copy(x.at[indices], o.at[indices]))
                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,  # noqa: E501
    ):
        used(lambda x, indices, o: pltpu.sync_copy(x.at[indices], o.at[indices]))


def test_a_parallel_loop_carries_no_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        plsc.parallel_loop(0, 1, carry=[x_ref])(lambda i, carry: carry)

    with shows(
        TypeError,
        """
        carry: a reference is not carried: the function uses it where it is
          got:      reference to i32[16] in any
          in JAX:   Carried values may not be refs, but got: Ref<any>{int32[16]}
          test_sparse_core.py:N, in kernel
            plsc.parallel_loop(0, 1, carry=[x_ref])(lambda i, carry: carry)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, like(X))(X)
