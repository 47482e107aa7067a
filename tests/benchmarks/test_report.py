"""The tables of the benchmarks, from made-up timings: what they say, and where they are written."""

from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from benchmarks import inputs, measure, report, routed, torch_peers
from benchmarks.cold import Cold
from benchmarks.measure import OURS, Comparison, Contender, Floor, Outcome, Timing

COLD = Cold(
    import_s=0.2, library_s=0.25, prepare_s=0.02, prepared_first=1, prepared_second=0, first_s=0.5, second_s=0.4
)


def outcome(ours, peer, floor=20.0, missing="", held=True):
    contenders = Contender(OURS, lambda: np.ones(1)), Contender("Peer", None if missing else np.ones, missing=missing)
    comparison = Comparison("product", contenders, np.ones(1), 1e-5, 2_000_000_000, Floor("Peer", floor, held))
    return Outcome(comparison, [Timing(contenders[0], 1e-7, False, ours), Timing(contenders[1], 2e-7, False, peer)])


def test_a_row_for_each_contender_with_medians_speed_and_ratio():
    assert report.rows([outcome([0.4, 0.5, 9.0], [12.0, 11.0, 10.0])]) == [
        ("product", OURS, "500 ms", "4.00", "", "", "", "1.0e-07"),
        ("", "Peer", "11.0 s", "0.18", "", "22.0×", "≥ 20×", "2.0e-07"),
    ]


def test_a_product_is_compared_with_what_the_registers_multiply_at_most(monkeypatch):
    monkeypatch.setattr(report, "peak", {"float32": 8e9}.__getitem__)
    found = outcome([0.5], [1.0])
    product = Outcome(replace(found.comparison, multiplied="float32"), found.timings)
    assert [row[4] for row in report.rows([product])] == ["50%", "25%"]


def test_a_missing_peer_stands_in_the_table_and_fails_its_floor():
    missing = outcome([0.5], [], missing="No module named 'peer'")
    assert report.rows([missing])[1][:3] == ("", "Peer", "missing: No module named 'peer'")
    assert missing.failures == ["product: not measured beside Peer, must be 20 times as fast"]


def test_a_floor_holds_or_is_named():
    assert outcome([0.5], [11.0]).failures == []
    assert outcome([0.5], [9.0]).failures == ["product: 18.0 times as fast as Peer, must be 20"]


def test_a_goal_that_is_not_reached_is_said_and_fails_nothing():
    short = outcome([0.5], [9.0], held=False)
    assert short.failures == []
    assert short.shortfall == "product: 18.00 times as fast as Peer, the goal is 20"
    assert report.rows([short])[1][6] == "goal 20×"
    assert outcome([0.5], [11.0], held=False).shortfall is None


def test_a_missed_goal_of_a_product_is_set_beside_what_the_registers_allow(monkeypatch):
    monkeypatch.setattr(report, "peak", {"float32": 8e9}.__getitem__)
    short = outcome([0.3], [4.5], held=False)
    near = Outcome(replace(short.comparison, multiplied="float32"), short.timings)
    assert report.shortfalls([near, short, outcome([0.5], [11.0], held=False)]) == [
        "product: 15.00 times as fast as Peer, the goal is 20; at the peak of the registers it would be 18.00",
        "product: 15.00 times as fast as Peer, the goal is 20",
    ]
    far = outcome([0.6], [4.5], held=False)
    of_memory = Outcome(replace(far.comparison, multiplied="float32"), far.timings)
    assert report.shortfalls([of_memory]) == ["product: 7.50 times as fast as Peer, the goal is 20"]


def test_a_floor_may_speak_of_the_best_peer():
    first = outcome([0.5], [11.0])
    faster = Timing(Contender("Other", np.ones), 0.0, False, [9.0])
    missing = Timing(Contender("Missing", None, missing="not there"))
    floor = Floor(measure.BEST, 20)
    found = Outcome(replace(first.comparison, floor=floor), [*first.timings, faster, missing])
    assert found.failures == ["product: 18.0 times as fast as the best of them, must be 20"]
    assert [row[6] for row in report.rows([found])] == ["", "", "≥ 20×", ""]
    goal = Outcome(replace(first.comparison, floor=replace(floor, held=False)), found.timings)
    assert goal.shortfall == "product: 18.00 times as fast as Other, the goal is 20"
    alone = Outcome(found.comparison, [first.timings[0], missing])
    assert alone.failures == ["product: not measured beside the best of them, must be 20 times as fast"]


def test_a_wrong_result_is_not_timed():
    contender = Contender(OURS, lambda: np.array([1.0, 2.0]))
    found = measure.run(Comparison("sum", [contender], np.array([1.0, 1.0]), 1e-5))
    assert found.timings[0].seconds == []
    assert found.failures == ["sum: the result of Palladio is wrong, error 7.1e-01"]


def test_a_result_that_is_no_number_is_wrong():
    found = measure.run(Comparison("sum", [Contender(OURS, lambda: np.array([np.nan]))], np.ones(1), 1e-5))
    assert found.timings[0].wrong


def test_slow_contenders_take_part_in_some_rounds_only():
    counts = {OURS: 0, "Slow": 0}

    def counted(name):
        counts[name] += 1
        return np.ones(1)

    contenders = [Contender(name, lambda name=name: counted(name), rounds) for name, rounds in ((OURS, 5), ("Slow", 2))]
    measure.run(Comparison("sum", contenders, np.ones(1), 1e-5))
    assert counts == {OURS: 6, "Slow": 3}  # one call each to check the result


def test_a_contender_takes_part_in_the_rounds_that_its_time_allows(monkeypatch):
    monkeypatch.setattr(measure, "LONGEST_S", 1e-9)
    found = measure.run(Comparison("sum", [Contender(OURS, lambda: np.ones(1), 9)], np.ones(1), 1e-5))
    assert len(found.timings[0].seconds) == 1


def test_the_time_of_compiling_takes_no_rounds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda seconds: None))
    left = [20.0]

    def compiled():
        clock[0] += left.pop() if left else 0.001
        return np.ones(1)

    found = measure.run(Comparison("sum", [Contender(OURS, compiled, 9, 300)], np.ones(1), 1e-5))
    assert len(found.timings[0].seconds) == 7


@pytest.mark.parametrize(("seconds", "rounds"), [(0.001, 31), (0.05, 20), (0.2, 7), (2.0, 5), (30.0, 1)])
def test_short_calls_have_more_rounds(monkeypatch, seconds, rounds):
    clock = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda seconds: None))

    def run():
        clock[0] += seconds * (1 - 1e-9)
        return np.ones(1)

    found = measure.run(Comparison("sum", [Contender(OURS, run)], np.ones(1), 1e-5))
    assert len(found.timings[0].seconds) == rounds


def test_products_that_peers_compute_too_slowly_are_converted_or_left_out(monkeypatch):
    monkeypatch.setattr(torch_peers, "slow_products", lambda dtype: "slow")
    x, y = (array.astype(ml_dtypes.bfloat16) for array in inputs.normal((8, 4), (2, 4, 3)))
    sizes = np.array([5, 3])
    loop = torch_peers.loop_of_mm(x, y, [slice(0, 5), slice(5, 8)])
    assert loop.name == "PyTorch, a loop of mm(out=), converted to float32"
    rows = [x[:5].astype(np.float32) @ y[0].astype(np.float32), x[5:].astype(np.float32) @ y[1].astype(np.float32)]
    np.testing.assert_allclose(np.asarray(loop.run()), np.concatenate(rows), rtol=0.01, atol=0.01)
    assert [each.missing for each in torch_peers.grouped_mm(x, y, sizes)] == ["slow", "slow"]


def test_products_of_float32_are_not_slow():
    assert torch_peers.slow_products(np.float32) == ""


def test_the_limits_of_a_first_call_hold_or_are_named():
    assert COLD.failures == []
    slow = Cold(
        import_s=0.2, library_s=0.25, prepare_s=0.25, prepared_first=1, prepared_second=1, first_s=0.5, second_s=0.4
    )
    assert slow.failures == [
        "preparing gmm takes 250 ms, must be under 100",
        "a second call of gmm prepares 1 programs, must be 0",
    ]


def test_an_import_that_takes_too_long_is_named():
    assert replace(COLD, import_s=0.3, library_s=0.31).failures == [
        "import palladio takes 300 ms, must be under 300",
        "import palladio, palladio.library takes 310 ms, must be under 300",
    ]


def test_a_count_that_sees_no_first_preparation_proves_nothing_of_the_second():
    blind = Cold(
        import_s=0.2, library_s=0.25, prepare_s=0.02, prepared_first=0, prepared_second=0, first_s=0.5, second_s=0.4
    )
    assert blind.failures == ["the first call of gmm prepares nothing: the count does not see what it prepares"]


def test_the_page_of_a_processor_has_the_tables_the_conditions_and_the_goals_that_were_missed():
    command = "make bench ARGS='--cores 1 --write'"
    lines = report.page([outcome([0.5], [11.0])], COLD, ["product: too slow"], command).splitlines()
    assert lines[2].endswith(f"This page is written by `{command}`.")
    assert lines[0].startswith("# Measured on ") and f"({pl.processor().name})" in lines[0]
    assert "| product | Palladio | 500 ms | 4.00 |  |  |  | 1.0e-07 |" in lines
    assert "| import palladio, NumPy included | 200 ms | < 300 ms |" in lines
    assert "| gmm: checking, tracing, preparing | 20.0 ms | < 100 ms |" in lines
    assert "| programs prepared by the second gmm call | 0 | 0 |" in lines
    assert "| gmm of 2 rows: the same, tensors | 0.00 µs | goal 30.0 µs |" in lines
    assert lines[-1] == "- product: too slow"
    assert report.page([], COLD, [], command).splitlines()[-1] == "Every goal was reached."
    assert "## In a fresh process" not in report.page([], None, [], command)


def test_a_call_that_takes_longer_than_its_goal_is_named():
    assert report.cold_shortfalls(COLD) == []
    assert report.cold_shortfalls(replace(COLD, compiled_again_s=0.074)) == [
        "compiled gmm: the same in a second process: 74.0 ms, the goal is 50.0 ms"
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.34, "12.3 s"), (1.0, "1.00 s"), (0.25, "250 ms"), (0.0999, "99.9 ms"), (5e-5, "50.0 µs")]
)
def test_durations_have_three_digits(seconds, text):
    assert report.duration(seconds) == text


def cell(name, ours, peer):
    found = outcome([ours], [peer])
    return Outcome(replace(found.comparison, name=name, floor=Floor("Peer", 1, False)), found.timings)


def test_the_geometric_mean_of_the_experts_cells_has_a_goal_for_each_dtype():
    cells = [
        cell("gmm float32, Mixtral's experts, 1 token", 1.0, 1.0),
        cell("gmm float32, DeepSeek's experts, 1 token", 1.0, 1.44),
        cell("gmm bfloat16, Mixtral's experts, 1 token", 1.0, 1.2),
        cell("gmm float32, another product", 1.0, 9.0),
    ]
    assert routed.short_means(cells) == [
        "experts in float32: 1.20 times as fast in the geometric mean, the goal is 1.3"
    ]
    assert routed.short_means([]) == []


def test_experts_are_chosen_by_popularity_and_each_token_has_different_ones():
    model = routed.MODELS["qwen3"]
    assert all(routed.counts(model, tokens, 0).sum() == tokens * model.top for tokens in (1, 16, 4096))
    assert routed.counts(model, 1, 0).max() == 1
    many = routed.counts(model, 4096, 0)
    assert many.max() > 3 * many.mean() and not (many == routed.counts(model, 4096, 1)).all()


def test_a_cell_of_the_experts_is_checked_against_float64_for_every_contender():
    model = routed.Experts("some experts", 6, 32, 16, 2)
    for dtype in (np.float32, ml_dtypes.bfloat16):
        found = measure.run(routed.routed(model, 5, dtype))
        assert [each.wrong for each in found.timings] == [False] * 4
        assert all(each.median for each in found.timings if not each.contender.missing)
