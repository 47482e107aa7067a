"""The output of `palladio port`: a file's import lines as Palladio's, and the names that would not work."""

from __future__ import annotations

import textwrap

import pytest

from palladio.compat.missing import INSTEAD, Missing
from palladio.compat.modules import answer
from palladio.compat.port import port


def ported(text: str) -> str:
    return port(textwrap.dedent(text)).text()


def test_import_lines_become_palladios() -> None:
    found = ported("""
        import functools
        import jax
        import jax.numpy as jnp
        from jax import lax, ShapeDtypeStruct as Shape
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu as pltpu

        @functools.partial(jax.jit, static_argnames=["n"])
        def f(x, n):
            return jax.lax.rsqrt(x) + jnp.ones(n, jnp.float32)
    """)
    assert found == textwrap.dedent("""\
        3 - import jax
          + import palladio as jax
          + import palladio.lax
        4 - import jax.numpy as jnp
          + import palladio.numpy as jnp
        5 - from jax import lax, ShapeDtypeStruct as Shape
          + import palladio.lax as lax
          + from palladio import ShapeDtypeStruct as Shape
        6 - from jax.experimental import pallas as pl
          + import palladio as pl
        7 - from jax.experimental.pallas import tpu as pltpu
          + import palladio.tpu as pltpu""")


def test_names_that_would_not_work_are_listed_with_what_to_use() -> None:
    found = ported("""
        import jax
        from jax import random
        from jax.experimental.pallas import mosaic_gpu as plgpu

        key = random.key(0)
        x = jax.pmap(lambda x: plgpu.TMEM(x))(key)
    """)
    assert found == textwrap.dedent("""\
        2 - import jax
          + import palladio as jax
        3 - from jax import random
        4 - from jax.experimental.pallas import mosaic_gpu as plgpu
          + import palladio.gpu as plgpu

        would not work:
        6 jax.random.key: numpy.random.default_rng(seed), outside of kernels
        7 jax.experimental.pallas.mosaic_gpu.TMEM: needs a Blackwell GPU (sm_100), which no executor of Palladio has
        7 jax.pmap: kernels run on one machine; palladio.tpu simulates copies between devices

        `palladio run --as-jax FILE.py` runs the file without an edit, with more of JAX: random numbers, trees, \
gradients""")


def test_names_that_another_module_of_palladio_has_are_imported_from_there() -> None:
    found = ported("""
        import jax
        from jax.sharding import Mesh, PartitionSpec as P

        specs = P("x"), jax.sharding.PartitionSpec("y")
    """)
    assert found.startswith(
        textwrap.dedent("""\
        2 - import jax
          + import palladio as jax
        3 - from jax.sharding import Mesh, PartitionSpec as P
          + from palladio import PartitionSpec as P

        would not work:
        5 jax.sharding.PartitionSpec: palladio.PartitionSpec
        """)
    )


@pytest.mark.parametrize("name", INSTEAD)
def test_a_replacement_is_suggested_only_for_a_name_that_a_file_of_palladio_lacks(name: str) -> None:
    assert [path for _, path, _ in port(f"import jax\n{name}()").missing] == [name]
    if INSTEAD[name].startswith("only palladio.compat has it"):
        assert not isinstance(answer("jax", name.removeprefix("jax.")), Missing)


def test_a_file_without_jax_says_so() -> None:
    assert ported("import numpy as np") == "the file does not import JAX"
