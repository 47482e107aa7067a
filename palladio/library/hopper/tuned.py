"""Configurations by measurement: those of the model beside each other on the card, the fastest kept for later calls.

All candidates have the same steps along the contracted axis, in the same order, so that a sum has the same bits with
each of them as far as an instruction of the tensor cores adds the same products in the same way in tiles of any size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library.checks import dtype_of
from palladio.library.hopper.config import MatmulConfig
from palladio.library.hopper.kept import kernel_rows
from palladio.library.hopper.limits import product_dtype
from palladio.library.hopper.model import BANDS, FEWEST_STAGES, Product, choose, fits, ranked, with_raster

KEPT = pl.KeptChoices("Hopper configurations", of_host=False)
"""The configurations that were measured, by card, function and product."""

LIKELY = 2.0
"""Candidates with this many times the best one's modelled clocks are not measured."""

FEWER_STAGES = 2
"""The most stages less than the model's that are measured."""

_AXES = None, "m", "n"


def division(function: str, product: Product, transposed: bool = False) -> MatmulConfig:
    """The configuration that was the fastest for a product on this machine's card; the model's if none was measured.

    Args:
        function: the name of the function of the library.
        transposed: True for a right operand `[n, k]`.
    """
    card = plgpu.card_name()
    kept = None if card is None else KEPT.find(_key(card, function, product, transposed))
    found = None if kept is None else _configuration(kept)
    return choose(product) if found is None or not fits(product, found) else found


def _key(card: str, function: str, product: Product, transposed: bool) -> Hashable:
    sizes = product.m, product.n, product.k, product.groups
    dtypes = str(product.operand), str(product.result)
    options = (*product.clusters, int(product.scaled), int(transposed))
    return card, plgpu.multiprocessors(), function, *sizes, *dtypes, *options


def _numbers(config: MatmulConfig) -> tuple[int, ...]:
    """A configuration of the model as integers."""
    axes = (_AXES.index(each) for each in (config.split, config.snake, config.cluster))
    tile = config.tile_m, config.tile_n, config.tile_k, config.stages
    return *tile, *axes, config.snake_width, int(config.promote)


def _configuration(numbers: Sequence[int]) -> MatmulConfig:
    """The inverse of `_numbers`."""
    tile_m, tile_n, tile_k, stages, split, snake, cluster, width, promote = numbers
    return MatmulConfig(
        *(tile_m, tile_n, tile_k, stages),
        split=_AXES[split] or "m",
        snake=_AXES[snake] or "m",
        snake_width=width,
        cluster=_AXES[cluster],
        promote=bool(promote),
    )


@dataclass(frozen=True)
class Measurement:
    """The measurement of one product.

    Fields:
        name: of the function.
        product: as the function divides it.
        sizes: `(m, k, n)` of the product that is compiled.
        transposed: as in `division`.
        operands: the operands, as in `palladio.gpu.time_kernels`.
        run: the function of the operands with a configuration.
    """

    name: str
    product: Product
    sizes: tuple[int, int, int]
    transposed: bool
    operands: Sequence[Any]
    run: Callable[[MatmulConfig], Callable[..., Any]]

    def candidates(self) -> list[MatmulConfig]:
        """Tiles and clusters, each with its raster and as many stages as fit, the model's choice first."""
        every = ranked(self.product)
        return [with_raster(self.product, each) for time, each in every if time <= LIKELY * every[0][0]]

    def neighbours(self, config: MatmulConfig) -> list[MatmulConfig]:
        """A configuration, then the same tile with other rasters and fewer stages."""
        rasters = [dataclasses.replace(config, snake=axis, snake_width=width) for axis in "mn" for width in BANDS]
        least = max(FEWEST_STAGES, config.stages - FEWER_STAGES)
        stages = [dataclasses.replace(config, stages=count) for count in range(least, config.stages)]
        return [*dict.fromkeys([config, *rasters, *stages])]

    def times(
        self, seconds: float, progress: Callable[[float], object] | None = None
    ) -> tuple[MatmulConfig, Mapping[MatmulConfig, float]]:
        """The model's choice, and the seconds of each configuration.

        Tiles and clusters are measured first, then rasters and stages of the fastest, beside the model's choice.
        """
        say = progress or (lambda done: None)
        model, *others = self.candidates()
        found = self._in_turns([model, *others], seconds / 2, lambda done: say(done / 2))
        best = min(found, key=lambda config: found[config])
        near = [each for each in self.neighbours(best) if each == best or each not in found]
        again = self._in_turns([*dict.fromkeys([model, *near])], seconds / 2, lambda done: say(0.5 + done / 2))
        return model, {**found, **again}

    def _in_turns(
        self, configs: Sequence[MatmulConfig], seconds: float, progress: Callable[[float], object]
    ) -> dict[MatmulConfig, float]:
        kernels = [pl.jit(self.run(each), interpret="hopper").ahead(*self.operands) for each in configs]
        times = plgpu.time_kernels(kernels, self.operands, seconds=seconds, progress=progress)
        return dict(zip(configs, times, strict=True))

    def keep(self, config: MatmulConfig) -> None:
        """Let later calls use a configuration on this card."""
        card = plgpu.card_name()
        if card is not None:
            KEPT.keep(_key(card, self.name, self.product, self.transposed), _numbers(config))


def measurement(
    function: Callable[..., Any], name: str, lhs: Any, rhs: Any, sizes: Any, transposed: bool
) -> Measurement:
    """The measurement of a product of `palladio.library.hopper`.

    Args:
        function: `hopper.matmul`, `gmm` or `tgmm`, and its name.
        lhs, rhs: arrays of which only shapes and dtypes are used.
        sizes: `i32[groups]` in host memory, the sizes of the groups; None for `matmul`.
        transposed: as in `division`.
    """
    operand, groups = dtype_of(lhs), 1 if sizes is None else len(sizes)
    dtypes = operand, product_dtype(None, operand, scaled=False)
    if name == "tgmm":
        (k, m), n = lhs.shape, int(rhs.shape[1])
        rows = kernel_rows(m, (m * operand.itemsize, n * operand.itemsize))
        product = Product(k, n, pl.cdiv(rows, groups), *dtypes, groups)
        shapes: Any = (k, rows), (rows, n)
    else:
        (m, k), n = lhs.shape, int(rhs.shape[-2 if transposed else -1])
        rows = kernel_rows(m, (k * operand.itemsize, n * dtypes[1].itemsize))
        product = Product(pl.cdiv(rows, groups), n, k, *dtypes, groups, ("m", "n") if name == "matmul" else ("n",))
        shapes = (rows, k), tuple(map(int, rhs.shape))
    operands = [pl.ShapeDtypeStruct(shape, dtype_of(each)) for shape, each in zip(shapes, (lhs, rhs), strict=True)]
    options = {} if name == "tgmm" else {"transpose_rhs": transposed}

    def run(config: MatmulConfig) -> Callable[..., Any]:
        return lambda *arrays: function(*arrays, config=config, **options)

    given = operands if sizes is None else [*operands, sizes]
    return Measurement(name, product, (rows, int(k), n), transposed, given, run)
