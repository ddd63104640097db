"""The loss-tolerance profiler: what a lost segment means, and which bound is found."""
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from thalweg.lab.figures.check import check  # noqa: E402
from thalweg.lab.tasks import char_lm, task_of  # noqa: E402
from thalweg.loss_bound import BoundProfile, Point, Run, profile_bound  # noqa: E402
from thalweg.lossy import SEGMENT_BYTES, Loss, LossyAverage, Segments  # noqa: E402

torch.set_num_threads(1)  # threads that wait for one another for so little cost more than they give
WORKERS = 4
PER_SEGMENT = SEGMENT_BYTES // 4 - 1  # one float is the count


def model():
    return nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 40))


def average(loss, seed=1):
    segments = Segments(model())
    return segments, LossyAverage(segments, loss, torch.Generator().manual_seed(seed))


def test_segments__do_not_span_tensors():
    segments = Segments(model())
    assert segments.count == 3 * (-(-1600 // PER_SEGMENT) + 1)
    assert segments.sizes.max() == PER_SEGMENT and segments.sizes.sum() == segments.elements == 3 * 1640
    assert segments.third_of.unique(return_counts=True)[1].tolist() == [segments.count // 3] * 3


def test_average__of_what_arrived_or_the_own_gradient():
    segments, reduce = average(Loss(0.4, result_fraction=0.3))
    own = torch.tensor([1., 2., 4., 8.]).double()  # a sum says who is in it
    averages = {sum(o for i, o in enumerate(own.tolist()) if subset >> i & 1) / subset.bit_count()
                for subset in range(1, 16)}
    kept_own = incomplete = 0
    for _ in range(20):
        gradients = own[:, None].repeat(1, segments.elements)
        reduce(gradients)
        for segment in range(segments.count):
            values = gradients[:, segments.segment_of == segment]
            assert (values == values[:, :1]).all()  # a segment has one fate
            got = set(values[:, 0].tolist()) - set(own.tolist())
            assert len(got) <= 1 and got <= averages  # whoever has an average has the same one
            kept_own += sum(v == o for v, o in zip(values[:, 0], own))
            incomplete += bool(got) and got != {own.mean().item()}
    assert kept_own > 0 and incomplete > 0
    assert reduce.lost / reduce.sent == pytest.approx(0.4, abs=0.06)


def test_average__without_loss_is_exact():
    segments, reduce = average(Loss())
    gradients = torch.randn(WORKERS, segments.elements)
    wanted = gradients.mean(0)
    reduce(gradients)
    assert torch.allclose(gradients, wanted.expand(WORKERS, -1), atol=1e-6)


@pytest.mark.parametrize("where,exposed", [
    ("front", lambda s, sizes: s.third_of == 0), ("back", lambda s, sizes: s.third_of == 2),
    ("small", lambda s, sizes: sizes.argsort().argsort() < s.count // 3),
    ("large", lambda s, sizes: sizes.argsort().argsort() >= s.count - s.count // 3)])
def test_average__loses_only_where_it_is_told(where, exposed):
    segments, reduce = average(Loss(0.9, where, result_fraction=0.0))
    size = torch.randperm(segments.count, generator=torch.Generator().manual_seed(7)) + 1.0
    gradients = size[segments.segment_of] * torch.arange(1., WORKERS + 1)[:, None]
    wanted = gradients.mean(0)
    reduce(gradients)
    changed = ((gradients - wanted).abs() > 1e-3).any(0)
    hit = torch.zeros(segments.count, dtype=torch.bool)
    hit[segments.segment_of[changed].unique()] = True
    may = exposed(segments, size)
    assert hit.any() and not (hit & ~may).any()


def test_error_feedback__makes_up_for_every_contribution():
    """Where all results arrive: the sum of what was applied and what is still missing is that of exact training."""
    segments, reduce = average(Loss(0.5, result_fraction=0.0, error_feedback=True))
    generator = torch.Generator().manual_seed(3)
    applied, wanted = torch.zeros(segments.elements).double(), torch.zeros(segments.elements).double()
    _, without = average(Loss(0.5, result_fraction=0.0))
    plain = torch.zeros_like(applied)
    for _ in range(10):
        gradients = torch.randn(WORKERS, segments.elements, generator=generator).double()
        wanted += gradients.mean(0)
        copy = gradients.clone()
        reduce(gradients)
        without(copy)
        # Where nobody's contribution arrived all keep their own: their mean is what is applied on average.
        applied += gradients.mean(0)
        plain += copy.mean(0)
    assert torch.allclose(applied + reduce._missing.mean(0), wanted, atol=1e-9)
    assert not torch.allclose(plain, wanted, atol=1e-2)


def point(where, fraction, *finals):
    return Point(where, fraction, tuple(Run((final / 2, final), fraction) for final in finals))


def test_bounds__are_the_largest_fractions_below_which_all_is_well():
    profile = BoundProfile("m", "accuracy", 0.02, {}, point("all", 0, 0.9, 0.92), (
        point("all", 0.01, 0.91, 0.91), point("all", 0.1, 0.89, 0.90), point("all", 0.3, 0.5, 0.92),
        point("all", 0.6, 0.91, 0.91), point("front", 0.01, 0.8, 0.8)))
    assert profile.bounds == {"all": 0.1, "front": 0.0} and profile.bound == 0.1
    assert profile.at("all")[0].epochs_to(profile.targets) == 2
    assert profile.at("all")[2].epochs_to(profile.targets) is None
    assert profile.to_json()["points"][2]["epochs_to_target"] is None
    check(profile.figure())


def samples(count=200):
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(count, 40, generator=generator)
    return inputs, (inputs[:, :4]).argmax(1)


def test_profile__trains_and_looks_closer_at_the_bound():
    def net():
        return nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    lines = []
    profile = profile_bound(net, samples(), optimizer=lambda p: torch.optim.SGD(p, lr=0.5), epochs=6, batch=8, seeds=2,
                            fractions=[0.05, 0.97], where=["all"], tolerance=0.05, refine=1, samples=128,
                            progress=lines.append)
    assert len(lines) == 4 and len(profile.points) == 3
    assert profile.exact.mean > 0.6, profile.table()
    assert profile.exact.mean - profile.points[-1].mean > 0.05, profile.table()  # losing nearly all of it hurts
    found = json.loads(json.dumps(profile.to_json()))
    assert found["samples"] == 128 and found["workers"] == WORKERS
    assert found["points"][-1]["lost"] == pytest.approx(0.97, abs=0.02)
    check(profile.figure())
    again = profile_bound(net(), samples(), epochs=1, seeds=1, fractions=[0.5], where=["large"], name="given")
    assert again.name == "given" and "large" in again.table()


@pytest.mark.parametrize("options,message", [
    ({"tolerance": -1}, "tolerance: -1"), ({"fractions": [1.0]}, "fractions: [1.0]"), ({"seeds": 0}, "seeds: 0"),
    ({"where": ["top"]}, "where: top"), ({"workers": 1}, "workers: 1"), ({"samples": 10}, "samples: 10")])
def test_profile__refuses(options, message):
    with pytest.raises(ValueError) as error:
        profile_bound(model(), samples(), **options)
    assert message in str(error.value)


@pytest.mark.parametrize("make,message", [
    (lambda: task_of("nosuch"), "digits-cnn, digits-resnet, char-lm and module:function"),
    (lambda: task_of("json:loads2"), "json:loads2"),
    (lambda: task_of("digits-cnn", text="x"), "text: only char-lm"),
    (lambda: char_lm("/nowhere"), "/nowhere"),
    (lambda: Segments(nn.Linear(2, 2)), "model: 1 layers"),
    (lambda: Loss(1.0), "fraction: 1.0"), (lambda: Loss(0.1, "top"), "where: 'top'")])
def test_tasks_and_losses__refuse(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert message in str(error.value)


def test_convergence__short_form_of_a_task_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\nfrom torch import nn\nfrom thalweg.task import Task\n"
        "def task():\n"
        "    x = torch.randn(160, 8)\n    data = x, (x[:, 0] > 0).long()\n"
        "    net = lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))\n"
        "    return Task('own', net, data, data)\n")
    done = subprocess.run([sys.executable, "-m", "thalweg.lab.bench.lossy_convergence", "--models", "own:task", "--seeds", "1",
                           "--out", str(tmp_path / "out")], cwd=tmp_path, timeout=200, check=False, text=True,
                          capture_output=True, env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert "| large |" in done.stdout
    found = json.loads((tmp_path / "out/convergence-own-task.json").read_text())
    assert len(found["points"]) == 15 and (tmp_path / "out/convergence-own-task.svg").stat().st_size > 1000
