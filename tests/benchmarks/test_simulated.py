"""The row of the simulator: the peer in a Python of its own, and what the table says where it cannot start."""

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks import simulated
from benchmarks.measure import OURS

A, B = np.full((2, 3), 2.0, np.float16), np.full((3, 2), 3.0, np.float16)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Take a script for the Python that has JAX: it gets the script that it should run, and the folder."""

    def use(body: str) -> None:
        script = tmp_path / "peer.py"
        script.write_text(textwrap.dedent(body), encoding="utf-8")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        monkeypatch.setattr(simulated, "PYTHON", python)

    return use


def test_the_peer_multiplies_in_a_process_of_its_own(stand_in):
    stand_in("""
        import pathlib, sys
        import numpy as np
        script, folder = sys.argv[1:]
        operands = np.load(pathlib.Path(folder) / "operands.npz")
        print("version", flush=True)
        for number, _ in enumerate(sys.stdin, 1):
            np.save(pathlib.Path(folder) / "result.npy", number * (operands["a"] @ operands["b"]))
            print("done", flush=True)
    """)
    peer = simulated.jax_interpreter(A, B)
    np.testing.assert_array_equal(peer.run(), A @ B)
    np.testing.assert_array_equal(peer.run(), 2 * (A @ B))


def test_a_peer_that_does_not_start_is_missing_and_says_why(stand_in):
    stand_in('raise SystemExit("no module named jax")')
    peer = simulated.jax_interpreter(A, B)
    assert peer.run is None
    assert peer.missing == "no module named jax"


def test_a_peer_that_ends_is_no_result(stand_in):
    stand_in('print("version", flush=True); input()')
    with pytest.raises(RuntimeError, match="JAX's interpreter ended"):
        simulated.jax_interpreter(A, B).run()


def test_without_such_a_python_the_row_says_what_installs_one(monkeypatch):
    monkeypatch.setattr(simulated, "PYTHON", Path("/nowhere/python"))
    assert "make bench JAX_PYTHON=python3.12" in simulated.jax_interpreter(A, B).missing


def test_the_row_checks_the_simulator_against_float64(monkeypatch):
    monkeypatch.setattr(simulated, "PYTHON", Path("/nowhere/python"))
    monkeypatch.setattr(simulated, "SIZE", 256)
    comparison = simulated.matmul()
    assert comparison.floor.ratio == 10
    ours = comparison.contenders[0]
    assert ours.name == OURS
    error = np.linalg.norm(np.asarray(ours.run(), np.float64) - comparison.expected)
    assert error <= comparison.tolerance * np.linalg.norm(comparison.expected)


def test_the_variable_of_make_names_no_python_with_jax(stand_in, monkeypatch):
    # `make bench JAX_PYTHON=python3.12` exports it: the Python that makes the environment with JAX, not that one.
    stand_in('print("version", flush=True)')
    monkeypatch.setenv("JAX_PYTHON", "/nowhere/python")
    assert simulated.jax_interpreter(A, B).missing == ""
