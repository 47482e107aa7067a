"""Copies within a core, under Pallas' TPU interpreter."""

import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

MAIN = pl.BlockSpec(memory_space=pl.ANY)
NUMBERS = pl.BlockSpec(memory_space=pltpu.SMEM)


def copied(kernel, numbers, x, *scratch):
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[NUMBERS, MAIN, MAIN],
        out_specs=MAIN,
        scratch_shapes=[*scratch, pltpu.SemaphoreType.DMA((2,))],
        input_output_aliases={2: 0},
        interpret=pltpu.InterpretParams(detect_races=True),
    )(np.array(numbers, np.int32), x, np.zeros_like(x))


def case_dynamic_numbers_of_rows(rng):
    def kernel(numbers, x, _, out, arrived):
        source, target, size = numbers[0], numbers[1], numbers[2]
        pltpu.async_copy(x.at[pl.ds(source, size)], out.at[pl.ds(target, size)], arrived.at[0]).wait()

    x = rng.standard_normal((16, 8, 128)).astype(np.float32)
    return [copied(kernel, numbers, x) for numbers in ((0, 0, 16), (3, 9, 5), (15, 0, 1))]


def case_rows_of_ragged_sequences(rng):
    """Each sequence of a batch is copied in pieces of at most four rows, the next one while this one is used."""

    def kernel(starts, x, _, out, held, arrived):
        def fetch(first, size, slot):
            return pltpu.make_async_copy(x.at[pl.ds(first, size)], held.at[slot, pl.ds(0, size)], arrived.at[slot])

        def sequence(n, carry):
            first, end = starts[n], starts[n + 1]
            pieces = pl.cdiv(end - first, 4)

            def size(piece):
                return lax.min(end - first - 4 * piece, np.int32(4))

            @pl.when(pieces > 0)
            def _():
                fetch(first, size(0), 0).start()

            def one(piece, carry):
                @pl.when(piece + 1 < pieces)
                def _():
                    fetch(first + 4 * (piece + 1), size(piece + 1), (piece + 1) % 2).start()

                count = size(piece)
                fetch(first + 4 * piece, count, piece % 2).wait()
                part = held.at[piece % 2, pl.ds(0, count)]
                pltpu.sync_copy(part, out.at[pl.ds(first + 4 * piece, count)])
                return carry

            return lax.fori_loop(0, pieces, one, carry)

        lax.fori_loop(0, 4, sequence, 0)

    x = rng.standard_normal((20, 8, 128)).astype(np.float32)
    return copied(kernel, (0, 7, 7, 12, 18), x, pltpu.VMEM((2, 4, 8, 128), np.float32))
