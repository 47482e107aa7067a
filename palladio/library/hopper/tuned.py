"""Configurations by measurement: those of the model beside each other on the card, the fastest kept for later calls.

All candidates for a product add the same steps along the contracted axis in the same order, so that a sum has the
same bits with each of them as far as an instruction of the tensor cores adds the same products in the same way in tiles
of any size. Those for attention have other blocks of keys, and other last bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from palladio.library.checks import dtype_of
from palladio.library.hopper.config import SPLITS, MatmulConfig
from palladio.library.hopper.kept import kernel_rows
from palladio.library.hopper.limits import product_dtype
from palladio.library.hopper.model import BANDS, FEWEST_STAGES, Product, choose, fits, ranked, with_raster
from palladio.library.hopper.scales import scales_of

KEPT = pl.KeptChoices("Hopper configurations", of_host=False)
"""The configurations that were measured, by card, function and product."""

LIKELY = 2.0
"""Candidates with this many times the best one's modelled clocks are not measured."""

FEWER_STAGES = 2
"""The most stages less than the model's that are measured."""

_AXES = None, "m", "n", "k"


def division(function: str, product: Product, transposed: bool = False) -> MatmulConfig:
    """The configuration that was the fastest for a product on this machine's card; the model's if none was measured.

    Args:
        function: the name of the function of the library.
        transposed: True for a right operand `[n, k]`.
    """
    numbers = kept(function, _parts(product, transposed))
    found = None if numbers is None else _configuration(numbers)
    return choose(product) if found is None or not fits(product, found) else found


def kept(function: str, parts: Sequence[Hashable]) -> tuple[int, ...] | None:
    """The numbers that were kept for a problem of a function on this machine's card.

    Args:
        parts: integers and strings, the sizes and dtypes of the problem.
    """
    card = plgpu.card_name()
    return None if card is None else KEPT.find((card, plgpu.multiprocessors(), function, *parts))


def keep(function: str, parts: Sequence[Hashable], numbers: Sequence[int]) -> None:
    """Keep numbers for a problem, as `kept` finds them."""
    card = plgpu.card_name()
    if card is not None:
        KEPT.keep((card, plgpu.multiprocessors(), function, *parts), numbers)


def _parts(product: Product, transposed: bool) -> Sequence[Hashable]:
    sizes = product.m, product.n, product.k, product.groups
    dtypes = str(product.operand), str(product.result)
    return *sizes, *dtypes, *product.clusters, int(product.scaled), int(product.paired), int(transposed)


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
        promote=promote or False,
    )


@dataclass(frozen=True)
class Timed:
    """A function of operands with a configuration.

    Fields:
        name: of the function.
        sizes: `(m, k, n)` of the product that is compiled.
        operands: the operands, as in `palladio.gpu.time_kernels`.
        run: the function of the operands with a configuration.
    """

    name: str
    sizes: tuple[int, int, int]
    operands: Sequence[Any]
    run: Callable[[Any], Callable[..., Any]]

    def in_turns(
        self, configs: Sequence[Any], seconds: float, progress: Callable[[float], object] | None
    ) -> dict[Any, float]:
        """The seconds of each configuration."""
        kernels = [pl.jit(self.run(each), interpret="hopper").ahead(*self.operands) for each in configs]
        times = plgpu.time_kernels(kernels, self.operands, seconds=seconds, progress=progress)
        return dict(zip(configs, times, strict=True))


@dataclass(frozen=True)
class Listed(Timed):
    """The measurement of a list of configurations of integers.

    Fields:
        parts: of the problem, as in `kept`.
        configs: the model's choice first.
    """

    parts: Sequence[Hashable]
    configs: Sequence[Any]

    def times(
        self, seconds: float, progress: Callable[[float], object] | None = None
    ) -> tuple[Any, Mapping[Any, float]]:
        """The model's choice, and the seconds of each configuration."""
        return self.configs[0], self.in_turns(self.configs, seconds, progress)

    def keep(self, config: Any) -> None:
        """Let later calls use a configuration on this card."""
        keep(self.name, self.parts, dataclasses.astuple(config))


@dataclass(frozen=True)
class Measurement(Timed):
    """The measurement of one product.

    Fields:
        product: as the function divides it.
        transposed: as in `division`.
    """

    product: Product
    transposed: bool = False

    def candidates(self) -> list[MatmulConfig]:
        """Tiles and clusters, each with its raster and as many stages as fit, the model's choice first."""
        every = ranked(self.product)
        least, model = every[0]
        likely = [each for time, each in every if time <= LIKELY * least and each.sums_like(model)]
        return [with_raster(self.product, each) for each in likely]

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
        found = self.in_turns([model, *others], seconds / 2, lambda done: say(done / 2))
        best = min(found, key=lambda config: found[config])
        near = [each for each in self.neighbours(best) if each == best or each not in found]
        again = self.in_turns([*dict.fromkeys([model, *near])], seconds / 2, lambda done: say(0.5 + done / 2))
        return model, {**found, **again}

    def keep(self, config: MatmulConfig) -> None:
        """Let later calls use a configuration on this card."""
        keep(self.name, _parts(self.product, self.transposed), _numbers(config))


def measurement(
    function: Callable[..., Any],
    name: str,
    lhs: Any,
    rhs: Any,
    sizes: Any,
    transposed: bool,
    preferred: Any = None,
    factors: tuple[Any, Any] = (None, None),
) -> Measurement:
    """The measurement of a product of `palladio.library.hopper`.

    Args:
        function: `hopper.matmul`, `gmm` or `tgmm`, and its name.
        lhs, rhs: arrays; only their shapes and dtypes are used.
        sizes: `i32[groups]` in host memory, the sizes of the groups; None for `matmul`.
        transposed: as in `division`.
        preferred: the dtype of the result, as in these functions.
        factors: those of `lhs` and `rhs`; only their shapes and dtypes are used. None for none.
    """
    operand, groups = dtype_of(lhs), 1 if sizes is None else len(sizes)
    names = ("x_scale", "y_scale") if name == "matmul" else ("lhs_scale", "rhs_scale")
    given = {name: each for name, each in zip(names, factors, strict=True) if each is not None}
    dtypes = operand, product_dtype(preferred, operand, bool(given) and name == "matmul")
    of_blocks = False
    if name == "tgmm":
        (k, m), n = lhs.shape, int(rhs.shape[1])
        rows = kernel_rows(m, (m * operand.itemsize, n * operand.itemsize))
        product = Product(k, n, pl.cdiv(rows, groups), *dtypes, groups)
        shapes: Any = (k, rows), (rows, n)
    else:
        (m, k), n = lhs.shape, int(rhs.shape[-2 if transposed else -1])
        rows = kernel_rows(m, (k * operand.itemsize, n * dtypes[1].itemsize))
        of_blocks = _of_blocks(factors, (m, n, k), None if sizes is None else groups, names)
        clusters = ("m", "n") if name == "matmul" else ("n",)
        splits = SPLITS if name == "matmul" else ("m", "n")
        product = Product(pl.cdiv(rows, groups), n, k, *dtypes, groups, clusters, of_blocks, splits=splits)
        shapes = (rows, k), tuple(map(int, rhs.shape))
    operands = [pl.ShapeDtypeStruct(shape, dtype_of(each)) for shape, each in zip(shapes, (lhs, rhs), strict=True)]
    options = {"preferred_element_type": preferred, **({} if name == "tgmm" else {"transpose_rhs": transposed})}
    count = 2 if sizes is None else 3

    def run(config: MatmulConfig) -> Callable[..., Any]:
        return lambda *arrays: function(
            *arrays[:count], config=config, **dict(zip(given, arrays[count:], strict=True)), **options
        )

    held = [_of_rows(each, m if key == names[0] else 0, rows) for key, each in given.items()]
    everything = [*operands, *([] if sizes is None else [sizes]), *held]
    return Measurement(name, (rows, int(k), n), everything, run, product, transposed)


def _of_blocks(
    factors: tuple[Any, Any], sizes: tuple[int, int, int], groups: int | None, names: tuple[str, str]
) -> bool:
    """True for factors of blocks along k, after checks of their shapes."""
    left, right = (None if each is None else np.zeros(each.shape, dtype_of(each)) for each in factors)
    m, n, k = sizes
    return scales_of(left, right, m, n, k, groups, names)[0].of_blocks


def _of_rows(factors: Any, m: int, rows: int) -> Any:
    """The type of factors of m rows for other rows: those of rows are along the last axis."""
    shape = tuple(map(int, factors.shape))
    other = (*shape[:-1], rows) if m and shape and shape[-1] == m else shape
    return pl.ShapeDtypeStruct(other, dtype_of(factors))
