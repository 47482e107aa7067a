"""What every test shares: golden files, the round trip of programs, and that an unexpected skip is a failure."""

from __future__ import annotations

import difflib
import gc
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from palladio.call.staged import CALLS
from palladio.cpu.stored import Stored
from palladio.ir.core import Program
from tests.round_trip import check_all, uncollected

# A test never measures time, and a run of the suite is repeatable.
settings.register_profile("palladio", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("palladio")

# JAX's programs run once in these tests: XLA leaves out the passes that only make them faster. It compiles each program
# as one LLVM module and without MLIR, which takes half the time. JAX reads these variables when it is imported.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
_QUICKLY = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{_QUICKLY} {os.environ.get('XLA_FLAGS', '')}".strip()

ALLOWED_SKIPS: dict[str, str] = {}
"""Start of a skip's reason -> why the suite is still whole without that test. Any other skip is a failure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")
    parser.addoption(
        "--every-dtype", action="store_true", help="run each conformance row in each dtype on the host twin"
    )
    parser.addoption("--schedules", type=int, default=32, help="how many schedules of each library kernel are checked")


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _refuse_skip(report: Report) -> Report:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(reason.startswith(allowed) for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"unexpected skip: {reason} (ALLOWED_SKIPS in tests/conftest.py lists the expected ones)"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes stays, so the garbage collector, which would look through it again and again, does not."""
    with uncollected():
        found = yield
        gc.freeze()
        return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _refuse_skip((yield))


ON_BOTH_EXECUTORS = ("dialect", "library", "mpmd", "pipeline", "tpu")
"""Folders whose kernels run on the evaluator, which defines what they do, and compiled."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_executor: the tests choose the executor of their kernels, e.g. by pl.check")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    once = metafunc.definition.get_closest_marker("one_executor") or "golden" in metafunc.fixturenames
    if metafunc.definition.path.parent.name in ON_BOTH_EXECUTORS and not once:
        metafunc.parametrize("default_executor", ["reference", "cpu"], indirect=True)


@pytest.fixture(autouse=True)
def default_executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor of kernels for which a test chooses none."""
    if hasattr(request, "param"):
        monkeypatch.setenv("PALLADIO_EXECUTOR", request.param)


@pytest.fixture(autouse=True, scope="session")
def kernels_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What the tests compile is kept in a folder of this run, which its processes share, not in the user's."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALLADIO_CACHE", str(folder / "compiled"))
        yield


@pytest.fixture(autouse=True, scope="session")
def products_traced() -> Generator[None]:
    """Products of the library are traced, as tests count and change how: none comes from disk before that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stored, "find", lambda stored: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def thawed() -> Generator[None]:
    """What `calls_forgotten` has frozen ends as objects do."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def calls_forgotten(thawed: None) -> Generator[None]:
    """A module's prepared calls go with it, and what remains is not looked through again by the garbage collector.

    Without this a process of the suite grows by gigabytes, and most of its time is the collector's.
    """
    yield
    CALLS.clear()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def programs_read_back(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The text of the programs that a test builds reads back as the same programs."""
    built: list[Program] = []
    build = Program.__init__

    def remember(self: Program, *args: Any, **fields: Any) -> None:
        build(self, *args, **fields)
        built.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(Program, "__init__", remember)
        yield
    check_all(built)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares a text with the test's own file, `golden/<test file>/<test>.txt` beside the test file.

    Another place, relative to the test file, is its second argument. `--update-golden` writes the file.
    """

    def compare(text: str, place: str | None = None) -> None:
        node = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")
        path = request.path.parent / (place or f"golden/{request.path.stem}/{node}.txt")
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        command = f'python -m pytest "{request.node.nodeid}" --update-golden'
        if not path.exists():
            pytest.fail(f"the golden file {_relative(path, request)} is missing; to write it: {command}", pytrace=False)
        known = path.read_text(encoding="utf-8")
        if known != text:
            lines = difflib.unified_diff(known.splitlines(), text.splitlines(), "golden", "this run", lineterm="")
            shown = "\n".join(lines)
            pytest.fail(f"{_relative(path, request)} differs; if that is meant: {command}\n{shown}", pytrace=False)

    return compare


def _relative(path: Path, request: pytest.FixtureRequest) -> Path:
    return path.relative_to(request.config.rootpath)
