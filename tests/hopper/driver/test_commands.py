"""`make test-gpu` and `make bench-gpu`, on a machine without a card and on the stand-in for its driver."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stdout
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import children, cost_model, results, rows, table
from benchmarks.gpu.children import MARK, PAST, Part
from benchmarks.gpu.points import POINTS
from benchmarks.gpu.rows import name_of
from palladio.call.staged import CALLS
from palladio.hopper.launch.driver import driver
from palladio.library import hopper
from palladio.library.hopper import kept
from tests.architecture.source import ROOT
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.imitated import install


def imitated(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.hopper.driver.imitated", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("name", ["test", "bench"])
def test_without_a_card_it_says_what_to_do(
    card: FakeDriver, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card.begin(devices=0)
    assert command.main([name, "--output", str(tmp_path / "out.json")]) == 2
    said = capsys.readouterr().out
    assert "Nothing was tested: the CUDA driver finds no GPU" in said
    assert "make test runs every kernel on the host twin (docs" in said
    assert not (tmp_path / "out.json").exists()


class InThisProcess:
    """A part of a run that is not a process of its own, which would import everything anew."""

    ended = None

    def __init__(self, arguments: Sequence[str], limit_s: float, record_s: float = 0.0) -> None:
        self.arguments = list(arguments)

    def records(self) -> list[dict[str, Any]]:
        said = io.StringIO()
        with redirect_stdout(said):
            command.main(self.arguments)
        marked = (line for line in said.getvalue().splitlines() if line.startswith(MARK))
        return [json.loads(line.removeprefix(MARK)) for line in marked]


@pytest.fixture
def here(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    install(card, monkeypatch)
    monkeypatch.setattr(command, "Part", InThisProcess)
    CALLS.clear()
    kept._KEPT.clear()
    return card


def test_the_test_command_from_end_to_end(here: FakeDriver, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    names = ["copies", "graphs", "fewer-rows", "shared-scopes"]
    points = [part for name in names for part in ("--only", name)]
    assert command.main(["test", *points, "--rows", "2", "--workers", "1", "--output", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [(point["point"], point["right"]) for point in found["points"]] == [(name, True) for name in names]
    assert [row["outcome"] for row in found["rows"]] == ["right", "right"]
    facts = found["facts"]
    assert facts["card"] == "Imitated H100" and facts["versions"]["numpy"] and facts["ended"] == "complete"
    assert {"clocks", "clocks_after", "driver", "nvrtc", "begun", "seconds"} <= set(facts)


def test_the_bench_command_from_end_to_end(
    here: FakeDriver, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    gmm, names = table.GMM, ("attention 16k, FlashAttention-2", "moe_mlp Qwen3", "a new case")
    only = ["matmul bf16 4096", gmm, "gmm 256 groups unaligned", *names]
    arguments = [part for name in only for part in ("--only", name)]

    def missing(torch: object, scale: float) -> None:
        raise NotImplementedError("there is no such function")

    monkeypatch.setitem(table.CASES, "a new case", table.Case("a new case", missing))
    command.main(["bench", *arguments, "--scale", "0.0005", "--output", str(out)])
    *measured, experts, other = json.loads(out.read_text())["cases"]
    for case in measured:
        assert "Palladio" in case["milliseconds"], case
        assert case["ratio"] == 1, "the imitated card takes the same time for all"
    assert "Palladio" in experts["milliseconds"], "Transformers counts tokens in a way that PyTorch has on CUDA alone"
    assert "share" in measured[2] and measured[2]["beside"] == gmm
    flash = "scaled_dot_product_attention, FLASH_ATTENTION"
    assert set(measured[3]["milliseconds"]) == {flash, table.DEFAULT, "Palladio"}
    assert "DeepGEMM" in measured[0]["missing"] and other["skipped"].endswith("there is no such function")
    lines = capsys.readouterr().out.partition("results over aims\n")[2].splitlines()
    assert (
        lines[0]
        == "  0.00  a new case                             skipped: NotImplementedError: there is no such function"
    )
    assert lines[-3].startswith("  1.00  matmul bf16 4096                       1.00x (aim 1.0)")


def test_calls_from_python_are_timed(here: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CALLS_AT_ONCE", 1)
    monkeypatch.setattr(table, "CALL_ROUNDS", 1)
    out = tmp_path / "out.json"
    command.main(["bench", "--only", table.CALLS, "--output", str(out)])
    (found,) = json.loads(out.read_text())["cases"]
    assert {"a kept call", "matmul", "gmm", "torch.matmul"} == set(found["microseconds"])
    assert found["most_microseconds"] == {"a kept call": 5.0, "matmul": 8.0, "gmm": 8.0}


class Graph:
    """A graph of PyTorch, of the launches on its current stream."""

    ready: Any = None

    @contextmanager
    def captured(self, *_: Any, stream: Any) -> Iterator[None]:
        known = driver()
        mode = known.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        known.call("cuStreamBeginCapture", stream.handle, mode)
        yield
        self.ready, self.stream = (
            known.call("cuGraphInstantiate", known.call("cuStreamEndCapture", stream.handle), 0),
            stream,
        )

    def replay(self) -> None:
        driver().call("cuGraphLaunch", self.ready, self.stream.handle)


def test_pytorch_captures_a_call(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    imitated_torch = install(card, monkeypatch)
    graph, known = Graph(), driver()
    with known.current(known.hopper(0)):
        side = SimpleNamespace(handle=int(known.call("cuStreamCreate", 1)), wait_stream=lambda other: None)
        monkeypatch.setattr(imitated_torch, "stream", side.handle)
        stand_ins = {
            "Stream": lambda: side,
            "CUDAGraph": lambda: graph,
            "current_stream": lambda: None,
            "stream": lambda stream: nullcontext(),
            "graph": graph.captured,
        }
        for name, each in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, each)
        card.calls()
        said = POINTS["tensors"]()
        made = card.calls()
    assert said.count("relative error") == 3 and said.count("replayed") == 2 and not card.failures
    assert sum(call.startswith("cuGraphLaunch") for call in made) == 2
    assert {call.rpartition("stream=")[2].split()[0] for call in made if "cuLaunchKernelEx" in call} == {
        f"{side.handle:#x}"
    }


def test_later_calls_on_other_streams(here: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    side = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    stand_ins = {"Stream": lambda: side, "current_stream": lambda: None, "stream": lambda stream: nullcontext()}
    for name, each in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, each)
    assert "relative error" in POINTS["later-calls"]() and not here.failures


def test_a_point_in_a_process_of_its_own() -> None:
    done = imitated("point", "copies")
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stdout + done.stderr


def test_a_part_that_fails_or_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, "-c"])
    with children.killed_at_end():
        failing = Part(["print('@@ {\"a\": 1}'); print('why'); raise SystemExit(3)"], 20)
        assert list(failing.records()) == [{"a": 1}]
        assert failing.ended == "ended with status 3: why"
        hanging = Part(["import time; time.sleep(60)"], 0.2)
        assert list(hanging.records()) == [] and hanging.ended == PAST
        telling = Part(["import time; print('x begins', flush=True); time.sleep(60)"], 3)
        assert list(telling.records()) == [] and telling.ended == f"{PAST}: x begins"


class Scripted:
    """A part of a run that says what a script lists, and ends as it lists."""

    begun: list[list[str]] = []
    scripts: dict[str, list[tuple[list[str], str | None]]] = {}

    def __init__(self, arguments: Sequence[str], limit_s: float, record_s: float = 0.0) -> None:
        self.arguments, self.ended = list(arguments), None
        Scripted.begun.append(self.arguments)

    def records(self) -> Iterator[dict[str, Any]]:
        said, self.ended = Scripted.scripts[" ".join(self.arguments[:2])].pop(0)
        for name in said:
            if name == "interrupt":
                raise KeyboardInterrupt
            yield {"row": name, "outcome": "right", "text": "", "point": name, "right": True}


@pytest.fixture
def scripted(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setattr(command, "Part", Scripted)
    monkeypatch.setattr(Scripted, "begun", [])
    return Scripted


def test_a_row_that_ends_its_process_does_not_end_its_share(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shares = [
        (["a"], "ended with status 3: lost"),
        (["b"], "ended with status -11: "),
        (["c"], PAST),
        ([], "what"),
        (["d"], None),
    ]
    monkeypatch.setattr(scripted, "scripts", {"point copies": [(["copies"], None)], "rows 0": shares})
    assert command.main(["test", "--only", "copies", "--workers", "1", "--output", str(tmp_path / "out.json")]) == 1
    said = [
        (row["row"], row["outcome"], row["text"]) for row in json.loads((tmp_path / "out.json").read_text())["rows"]
    ]
    known = [name_of(0, 1, position) for position in (2, 4, 5)]
    assert said == [
        ("a", "right", ""),
        ("b", "right", ""),
        (known[0], "error", "ended with status -11: "),
        ("c", "right", ""),
        (known[1], "error", PAST),
        (known[2], "error", "what"),
        ("d", "right", ""),
    ]
    assert [each[3] for each in scripted.begun[1:]] == ["0", "1", "3", "5", "6"]


def test_points_share_a_process_until_one_ends_it(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts = {
        "point launch": [(["launch"], f"{PAST}: copies begins")],
        "point descriptors": [(["descriptors"], "ended with status 3: CardError")],
        "point multicast": [([], "ended with status -11: ")],
        "point graphs": [(["graphs"], None)],
        "rows 0": [([], None)],
    }
    monkeypatch.setattr(scripted, "scripts", scripts)
    names = ["launch", "copies", "descriptors", "multicast", "graphs"]
    only = [part for name in names for part in ("--only", name)]
    assert command.main(["test", *only, "--workers", "1", "--output", str(tmp_path / "out.json")]) == 1
    points = json.loads((tmp_path / "out.json").read_text())["points"]
    assert [(each["point"], each["right"]) for each in points] == [
        *(("launch", True), ("copies", False), ("descriptors", True), ("multicast", False), ("graphs", True))
    ]
    assert points[1]["text"] == f"{PAST}: copies begins" and points[3]["text"] == "ended with status -11: "
    assert scripted.begun[:4] == [["point", *names[n:]] for n in (0, 2, 3, 4)]


def test_a_point_that_fails_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> str:
        raise AssertionError("wrong")

    monkeypatch.setitem(POINTS, "copies", fails)
    monkeypatch.setitem(POINTS, "launch", lambda: "fine")
    assert command.main(["point", "launch", "copies", "graphs"]) == children.LOST
    said = [json.loads(line.removeprefix(MARK)) for line in capsys.readouterr().out.splitlines() if MARK in line]
    assert [(each["point"], each["text"]) for each in said] == [("launch", "fine"), ("copies", "AssertionError: wrong")]


def test_a_case_that_destroys_the_context_ends_its_process(here: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    monkeypatch.setattr(table, "run", lambda name, scale, without: run.append(name))
    assert command.main(["case", "a", "b"]) == 0 and run == ["a", "b"]
    here.fail("cuCtxSynchronize", 700, sticky=True)
    assert command.main(["case", "a", "b"]) == children.LOST and run == ["a", "b", "a"]


def test_a_context_that_is_lost_costs_one_case_and_names_the_contender(
    here: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost() -> torch.Tensor:
        here.fail("cuCtxSynchronize", 700, sticky=True)
        return torch.ones(2)

    def no_cache() -> None:
        raise RuntimeError("the context is lost")

    contenders = {"peer": lambda: torch.ones(2), table.OURS: lost}
    monkeypatch.setitem(table.CASES, "a case", table.Case("a case", lambda torch, scale: (contenders, 1.0), 1.0))
    monkeypatch.setattr(torch.cuda, "empty_cache", no_cache)
    assert command.main(["case", "a case", "another"]) == children.LOST
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith(MARK))
    said = json.loads(line.removeprefix(MARK))
    assert said["failed"] == table.OURS and "an illegal memory access" in said["skipped"]


def test_the_other_contenders_are_measured_without_the_one_that_failed(
    card: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"case": "a", "milliseconds": {"peer": 2.0}, "tflops": {"peer": 300.0}, "ratio": None, "aim": 1.0}
    hung = {"case": "b", "milliseconds": {"Palladio": 1.0}, "tflops": {"Palladio": 600.0}, "ratio": None, "aim": 1.0}
    says: dict[str, tuple[list[dict[str, Any]], str | None]] = {
        "a b": ([{"case": "a", "skipped": "CardError: why", "failed": "Palladio"}], "ended with status 3: "),
        "a --without Palladio": ([{**others, "missing": {"x": "is not there"}}], None),
        "b --scale 1.0": ([], f"{PAST}: torch.matmul, transposed begins"),
        "b --without torch.matmul, transposed": ([{**hung, "missing": {}}], None),
    }

    class Prepared(Scripted):
        def records(self) -> Iterator[dict[str, Any]]:
            said, self.ended = says.pop(next(key for key in says if " ".join(self.arguments[1:]).startswith(key)))
            yield from said

    monkeypatch.setattr(command, "Part", Prepared)
    out = tmp_path / "out.json"
    assert command.main(["bench", "--only", "a", "--only", "b", "--output", str(out)]) == 1
    first, second = json.loads(out.read_text())["cases"]
    assert first["missing"] == {"x": "is not there", "Palladio": "CardError: why"} and first["tflops"]["peer"] == 300
    assert second["missing"] == {"torch.matmul, transposed": f"{PAST}: torch.matmul, transposed begins"}
    assert not says and not results.meets_aims(first) and results.meets_aims(second)
    assert (
        "no ratio: peer 2.000 ms (300 TFLOP/s)\n    x: is not there\n    Palladio: CardError" in capsys.readouterr().out
    )


def test_elements_that_no_kernel_writes_are_poisoned(here: FakeDriver) -> None:
    wanted = "memory.unwritten_elements_are_uninitialised-i16"
    (found,) = (pair for pair in rows.all_rows() if rows._name(*pair) == wanted)
    assert rows._outcome(*found) == ("right", "", False)
    assert not here.failures


def test_sums_of_products_of_8_bit_floats_have_a_tolerance_of_their_own() -> None:
    pairs = {rows._name(*pair): pair for pair in rows.all_rows()}
    row, dtype = pairs["tensor_cores.e4m3fn-f32"]
    case = row.case(dtype)
    near, far = ((np.asarray(case.expected[0]) * (1 + error)).astype(np.float32) for error in (1e-4, 1e-3))
    assert not [*rows._faults((near,), case, True)]
    assert [*rows._faults((near,), case, False)] and [*rows._faults((far,), case, True)]


def test_results_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, got = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4)
    got[2, 3] = 13
    whole = float((got - expected).norm() / expected.norm())
    for size in (5, 100):
        monkeypatch.setattr(table, "COMPARED", size)
        assert table.relative_error(got, expected) == pytest.approx(whole)
    got[0, 0] = float("nan")
    assert not table.relative_error(got, expected) <= 1


def test_processes_that_all_fail_at_once_are_not_started_for_ever(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scripted, "scripts", {"point copies": [([], "why")], "rows 0": [([], "no module")] * 100})
    assert command.main(["test", "--only", "copies", "--workers", "1", "--output", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["points"] == [{"point": "copies", "right": False, "text": "why"}]
    assert len(found["rows"]) == command.CRASHES + 1
    assert found["rows"][-1]["text"] == "5 processes in a row ended at their first row"


def test_points_and_rows_that_cannot_be_imported_are_rows_of_the_results(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("points", "rows"):
        monkeypatch.setitem(sys.modules, f"benchmarks.gpu.{name}", None)
    scripts = {"point points": [([], "no module")], "rows 0": [(["a"], "ended with status -11: "), ([], None)]}
    monkeypatch.setattr(scripted, "scripts", scripts)
    assert command.main(["test", "--workers", "1", "--output", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["points"] == [{"point": "points", "right": False, "text": "no module"}]
    assert [row["row"] for row in found["rows"]] == ["a", "row 1 of share 0"]
    assert found["facts"]["ended"] == "complete"


def test_cases_that_cannot_be_imported_are_a_row_of_the_results(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.table", None)
    monkeypatch.setattr(scripted, "scripts", {"case cases": [([], "no module")]})
    assert command.main(["bench", "--output", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["cases"] == [{"case": "cases", "skipped": "no module"}]
    assert found["facts"]["ended"] == "complete"


def test_an_interrupted_run_keeps_its_results(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts = {"point launch": [(["launch", "interrupt"], None)]}
    monkeypatch.setattr(scripted, "scripts", scripts)
    points = ["--only", "launch", "--only", "copies"]
    assert command.main(["test", *points, "--output", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert [point["point"] for point in found["points"]] == ["launch"]
    assert found["facts"]["ended"] == "interrupted" and {"card", "clocks_after"} <= set(found["facts"])


SAYS_AND_SLEEPS = """
import sys, time
open({starts!r}, "a").write(sys.argv[1] + "\\n")
point = sys.argv[1] == "point"
print('@@ {{"row": "a", "outcome": "right", "text": "", "point": "copies", "right": true}}', flush=True)
time.sleep(0 if point else 60)
"""


def test_an_interrupted_suite_starts_no_process_again(
    card: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, starts, out = (tmp_path / name for name in ("part.py", "starts", "out.json"))
    script.write_text(SAYS_AND_SLEEPS.format(starts=str(starts)))
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, str(script)])

    def interrupt() -> None:
        while not (out.exists() and len(json.loads(out.read_text()).get("rows", [])) == 2):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    assert command.main(["test", "--only", "copies", "--workers", "2", "--output", str(out)]) == 1
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(20)
            assert not thread.is_alive()
    found = json.loads(out.read_text())
    assert starts.read_text().split() == ["point", "rows", "rows"]
    assert found["facts"]["ended"] == "interrupted"
    assert [row["outcome"] for row in found["rows"]] == ["right", "right"]


def test_no_part_starts_when_the_time_is_over(scripted: type[Scripted], tmp_path: Path) -> None:
    out, never = tmp_path / "out.json", ["--seconds", "0"]
    assert command.main(["test", "--workers", "2", "--output", str(out), *never]) == 1
    found = json.loads(out.read_text())
    assert len(found["points"]) == len(POINTS) and not scripted.begun
    assert {each["text"] for each in (*found["points"], *found["rows"])} == {command.NO_TIME}
    command.main(["bench", "--output", str(out), *never])
    assert {each["skipped"] for each in json.loads(out.read_text())["cases"]} == {command.NO_TIME}
    assert not scripted.begun


def test_a_part_without_records_for_a_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, "-c"])
    with children.killed_at_end():
        part = Part(["print('@@ {\"a\": 1}', flush=True)\nimport time; time.sleep(60)"], 60, 3)
        assert list(part.records()) == [{"a": 1}] and part.ended == PAST


def test_the_first_line_of_a_part_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, "-c"])
    with children.killed_at_end():
        # An interpreter takes longer to start than the millisecond that a record may take.
        part = Part(["import time; print('x begins', flush=True); time.sleep(100)"], 120, 0.001)
        assert list(part.records()) == [] and part.ended == f"{PAST}: x begins"


def test_the_points_are_in_the_order_in_which_they_stand_on_each_other() -> None:
    assert list(POINTS)[:6] == [
        *("launch", "copies", "descriptors", "dtypes-of-products", "row-offsets", "left-in-registers")
    ]


@pytest.mark.parametrize("kind", ["uniform", "skewed", "empty", "unaligned"])
def test_group_sizes_have_all_rows(kind: str) -> None:
    sizes = table.sizes_of(kind, 16, 4096)
    assert sum(sizes) == 4096 and min(sizes) >= 0
    assert (0 in sizes) == (kind == "empty")


def test_the_cost_models_are_held_against_the_card(
    here: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = itertools.count(1)
    monkeypatch.setattr(cost_model, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(cost_model, "_milliseconds", lambda clock, call: (call(), next(times))[1])
    monkeypatch.setattr(cost_model, "simulated", lambda config: float(config.tile_m))
    out = tmp_path / "out.json"
    assert command.main(["bench", "--only", cost_model.NAME, "--scale", "0.03", "--output", str(out)]) == 0
    (record,) = json.loads(out.read_text())["cases"]
    assert record["configurations"] == 3 and set(record["correlations"]) == {"simulator", "analytic model"}
    assert "rank correlation over 3 configurations: simulator " in results.case_line(record)


def test_a_simulation_that_hangs_is_given_up(here: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times, sizes, released = itertools.count(1), itertools.count(1), threading.Event()

    def simulated(config: hopper.MatmulConfig) -> float:
        number = next(sizes)
        if number == 3:
            released.wait(60)
        return float(number)

    monkeypatch.setattr(cost_model, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(4))
    monkeypatch.setattr(cost_model, "_milliseconds", lambda clock, call: next(times))
    monkeypatch.setattr(cost_model, "simulated", simulated)
    monkeypatch.setattr(cost_model, "wait", until_three_are_done)
    out = tmp_path / "out.json"
    try:
        assert command.main(["bench", "--only", cost_model.NAME, "--scale", "0.04", "--output", str(out)]) == 0
    finally:
        released.set()
    (record,) = json.loads(out.read_text())["cases"]
    assert record["configurations"] == len(record["measured"]) == 4
    assert record["modelled"].count(None) == 1 and record["correlations"]["analytic model"] is not None
    assert "1 configurations were not simulated in time" in results.case_line(record)


def until_three_are_done(waiting: Sequence[Future[float]], timeout: float) -> None:
    while sum(each.done() for each in waiting) < 3:
        time.sleep(0.01)


def test_what_is_not_simulated_in_time_has_no_result() -> None:
    done, failed = Future[float](), Future[float]()
    done.set_result(2.0)
    failed.set_exception(RuntimeError())
    assert cost_model._done([done, Future(), failed], time.monotonic()) == [2.0, None, None]


def test_workers_that_hang_are_killed() -> None:
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    pool.submit(time.sleep, 600)
    (worker,) = pool._processes.values()
    cost_model._stop(pool)
    assert connection.wait([worker.sentinel], 20)  # `is_alive` races with the pool's own thread, which reaps it too


HANGS = """
import argparse, ctypes, sys, time
from pathlib import Path
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import card
from benchmarks.gpu.results import Results

found = Results(Path(sys.argv[1]), {})
found.add("points", {"point": "copies", "right": True})
command.END_S, command.GRACE_S = 2.5, 1.0
command._begun = lambda options: found
command._run(argparse.Namespace(seconds=0.5), lambda *_: {hang})
"""


@pytest.mark.parametrize("holds_lock", [False, True])
def test_a_run_ends_whatever_hangs(tmp_path: Path, holds_lock: bool) -> None:
    out = tmp_path / "out.json"
    hang = "ctypes.PyDLL(None).sleep(600)" if holds_lock else "time.sleep(600)"
    line = [sys.executable, "-c", HANGS.replace("{hang}", hang), str(out)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 1
    found = json.loads(out.read_text())
    assert [point["point"] for point in found["points"]] == ["copies"]
    assert holds_lock or found["facts"]["ended"] == "at its time limit"


STARTS_ANOTHER = """
import subprocess, time
print("@@", subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


def test_processes_of_a_part_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.children.PYTHON", [sys.executable, "-c"])
    with children.killed_at_end():
        part = Part([STARTS_ANOTHER], 300)
        place = Path("/proc", str(next(part.records())), "stat")
    while place.exists() and place.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_the_configurations_are_a_hundred_and_differ() -> None:
    found = cost_model.configurations()
    assert len(set(found)) == len(found) == 100 and found == cost_model.configurations()


def test_the_simulator_orders_configurations() -> None:
    config = hopper.MatmulConfig(blocks=2)
    assert cost_model.simulated(config) > 1.5 * cost_model.simulated(dataclasses.replace(config, blocks=8))


def test_rank_correlation() -> None:
    assert cost_model.rank_correlation([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1)
    assert cost_model.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert cost_model.rank_correlation([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.9486833)  # ties have mean ranks
    assert cost_model.rank_correlation([1, 2], [3, 3]) is None


def test_groups_of_different_sizes_are_held_against_groups_of_one_size() -> None:
    record = {"case": "gmm", "ratio": 1.2, "aim": 1.1, "tflops": {}, "least_share": 0.95}
    assert results.meets_aims(record | {"share": 0.96}) and not results.meets_aims(record | {"share": 0.94})
    assert {each.beside for each in table.CASES.values()} - {None} <= set(table.CASES)


def test_the_lines_of_the_results() -> None:
    measured = {
        "case": "matmul",
        "milliseconds": {"torch.matmul": 2.0, "Palladio": 1.0},
        "tflops": {"torch.matmul": 350.0, "Palladio": 700.0},
        "ratio": 2.0,
        "aim": 1.0,
        "missing": {"DeepGEMM": "not installed"},
    }
    assert results.case_line(measured).splitlines() == [
        "matmul                           2.00x (aim 1.0): torch.matmul 2.000 ms (350 TFLOP/s), Palladio 1.000 ms (700 "
        "TFLOP/s)",
        "    DeepGEMM: not installed",
    ]
    assert results.case_line({"case": "x", "skipped": "no time"}).endswith("skipped: no time")
    assert results.meets_aims(measured | {"least_tflops": 700.0})
    assert not results.meets_aims(measured | {"least_tflops": 701.0})
    assert not results.meets_aims(measured | {"aim": 2.1})
    assert results.score(measured | {"least_tflops": 1000.0}) == 0.7 and results.score(measured | {"aim": None}) is None
    assert results.score(measured | {"share": 0.9, "least_share": 0.95}) == pytest.approx(0.9 / 0.95)
    assert not results.meets_aims(measured | {"missing": {"Palladio": "wrong"}})
    calls = {"case": "calls", "microseconds": {"matmul": 7.04, "torch": 9.0}, "most_microseconds": {"matmul": 8.0}}
    assert results.case_line(calls).split(maxsplit=1)[1] == "matmul 7.0 µs (at most 8), torch 9.0 µs"
    assert results.meets_aims(calls)
    assert not results.meets_aims(calls | {"most_microseconds": {"matmul": 7.0}})
    found = [{"row": "a", "outcome": "right", "text": ""}, {"row": "b", "outcome": "wrong", "text": "output 0"}]
    assert results.row_lines(found) == ["1 right, 1 wrong", "  b: wrong output 0"]


@pytest.mark.parametrize(
    ("ended", "contender"),
    [
        (f"{PAST}: torch.matmul, transposed begins", "torch.matmul, transposed"),
        ("ended with status -11: x begins | Palladio begins", "Palladio"),
        ("ended with status 1: x begins | a traceback", None),
    ],
)
def test_the_contender_that_began_last(ended: str, contender: str | None) -> None:
    assert results.begun_last(ended) == contender
