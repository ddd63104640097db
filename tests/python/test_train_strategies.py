"""python/thalweg/lab/train_strategies.py: strategies trained in one process."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from thalweg.lab import train_strategies  # noqa: E402

PACE = {"workers": 4, "pace_ms": 100.0, "worker_pace_ms": [100.0] * 4}


@pytest.fixture(scope="module")
def digits():
    return train_strategies.load()


def curve(point, digits, iterations=60, seed=0):
    return [accuracy for _, _, accuracy in train_strategies.train({**PACE, **point}, iterations, seed, *digits)]


def test_all_in_one_group__is_bsp(digits):
    assert curve({"period": [[[0, 1, 2, 3]]]}, digits) == pytest.approx(curve({}, digits), abs=0.4)


def test_nobody_averages__goes_another_way(digits):
    """Not a worse one within so few iterations: what is looked at is the average of four models of one beginning."""
    alone = curve({"period": [[[0], [1], [2], [3]]]}, digits)
    apart = [abs(ours - bsp) for ours, bsp in zip(alone, curve({}, digits), strict=True)]
    assert apart[0] < 0.5 and max(apart) > 4


def test_groups_and_gossip__keep_the_accuracy_of_bsp(digits):
    bsp = curve({}, digits, iterations=150)[-1]
    for point in ({"gossip": True}, {"period": [[[0, 2], [1], [3]], [[1, 3], [0], [2]], [[0, 1], [2, 3]]], "swa": True}):
        assert curve(point, digits, iterations=150)[-1] > bsp - 2


def test_weight_average__is_the_mean_of_the_models_at_first(digits, monkeypatch):
    """The initial parameters have no weight in it. What is tested is looked at in place of its accuracy."""
    monkeypatch.setattr(train_strategies, "LOOK_EVERY", 1)
    monkeypatch.setattr(train_strategies.Models, "mean_accuracy",
                        lambda models, _test: [p.mean(0) for p in models.parameters])
    models, averages = (curve({"period": [[[0, 1], [2, 3]]], "swa": swa}, digits, iterations=6) for swa in (False, True))
    for count, average in enumerate(averages, 1):
        for ours, *of_models in zip(average, *models[:count], strict=True):
            assert ours == pytest.approx(sum(of_models) / count, abs=1e-5)


def test_staleness__holds_the_fast_worker_back(digits):
    """With a worker of a tenth of the speed, as many pushes take longer."""
    slow = {"servers": True, "worker_pace_ms": [100.0, 100.0, 100.0, 1000.0]}
    ends = [train_strategies.train({**PACE, **slow, "staleness": bound}, 20, 0, *digits)[-1][1] for bound in (None, 4, 0)]
    assert 1.5 * ends[0] < ends[1] < ends[2]


def test_summary__is_over_all_seeds():
    runs = [[(5, 500.0, 90.0), (10, 1000.0, 95.0)], [(5, 500.0, 96.0), (10, 1000.0, 94.0)]]
    one = train_strategies.summary_of(runs, 95.0)
    assert (one["iterations_to_target"], one["seconds_to_target"], one["best_accuracy"]) == (7.5, 0.75, 95.5)
    assert one["best_accuracy_spread"] == 0.5 and one["accuracy"] == [93.0, 94.5]
    assert train_strategies.summary_of(runs, 95.5)["iterations_to_target"] is None
