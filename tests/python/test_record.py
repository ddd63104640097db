"""The recorder on small CPU models, and the shapes of our own network definitions."""
import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from thalweg.lab import transformer_models  # noqa: E402
from thalweg.record import record  # noqa: E402
from thalweg.layer_table import Layer, Table  # noqa: E402


class VirtualTime:
    """A clock that moves only when told to, and by a little at each look."""

    def __init__(self, look_us):
        self.now, self.look_s = 0.0, look_us * 1e-6

    def perf_counter(self):
        self.now += self.look_s
        return self.now


class Slow(nn.Module):
    """An identity that takes a stated time in both directions."""

    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, clock, forward_us, backward_us):
            ctx.clock, ctx.backward_s = clock, backward_us * 1e-6
            clock.now += forward_us * 1e-6
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ctx.clock.now += ctx.backward_s
            return grad, None, None, None

    def __init__(self, clock, forward_us, backward_us):
        super().__init__()
        self.wait = clock, forward_us, backward_us

    def forward(self, x):
        return self.Wait.apply(x, *self.wait)


class Tied(nn.Module):
    """Used out of the order of definition, one parameter twice, one module that is never called."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.words = nn.Embedding(10, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, tokens):
        x = self.words(tokens) * self.scale
        x, _ = self.attention(x, x, x)
        return self.last(x) @ self.words.weight.T


def small():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(4 * 6 * 6, 10))


def test_layers__order_names_and_tensors():
    table = record(small(), torch.randn(3, 1, 8, 8), iterations=2, warmup=1)
    assert [(layer.name, layer.tensors) for layer in table.layers] == [
        ("0", (36, 4)), ("1", (4, 4)), ("4", (1440, 10))]
    assert table.params == sum(p.numel() for p in small().parameters())
    assert (table.batch, table.sample, table.dtype, table.device_scale) == (3, "1x8x8", "float32", 1)
    assert table.device and table.torch == torch.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table.date)


def test_layers__first_use_decides_and_uncalled_modules_join_their_parent():
    table = record(Tied(), torch.randint(10, (2, 3)), iterations=2, warmup=1)
    assert [(layer.name, layer.tensors) for layer in table.layers] == [
        ("tied", (4,)), ("words", (40,)), ("attention", (48, 12, 16, 4)), ("last", (16, 4))]


def test_layers__frozen_parameters_are_left_out():
    model = small()
    model[0].requires_grad_(False)
    model[4].bias.requires_grad_(False)
    table = record(model, torch.randn(3, 1, 8, 8), iterations=2, warmup=1)
    assert [(layer.name, layer.tensors) for layer in table.layers] == [("1", (4, 4)), ("4", (1440,))]


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small gain nothing from threads, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def clock(monkeypatch, request):
    virtual = VirtualTime(getattr(request, "param", 0))
    monkeypatch.setattr("thalweg.record.time", virtual)
    return virtual


def times(table):
    return [(pytest.approx(layer.forward_us, abs=0.01), pytest.approx(layer.backward_us, abs=0.01))
            for layer in table.layers]


def test_times__operations_without_parameters_go_to_the_layer_before_them(clock):
    model = nn.Sequential(Slow(clock, 10, 20), nn.Linear(4, 4), Slow(clock, 400, 200), nn.Linear(4, 4),
                          Slow(clock, 800, 1600))
    table = record(model, torch.randn(2, 4, requires_grad=True), iterations=3, warmup=1)
    # Forward: what follows a layer is its own. Backward: a gradient waits for all that is behind it.
    assert times(table) == [(410, 220), (800, 1600)]


def test_times__a_gradient_out_of_turn_costs_nothing_of_its_own(clock):
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.early, self.late = Slow(clock, 1, 50), Slow(clock, 2, 7)

        def forward(self, x):
            x = self.early(x @ self.b.weight)
            return self.b(self.late(self.a(x)))

    table = record(Crossed(), torch.randn(2, 4), iterations=3, warmup=1)
    # b is complete only at the very end, after a; replayed in reverse order it holds up everything.
    assert [layer.name for layer in table.layers] == ["a", "b"]
    assert times(table) == [(3, 0), (0, 57)]


@pytest.mark.parametrize("clock", [1], indirect=True)
def test_times__totals_are_free_of_the_cost_of_marks(clock):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), Slow(clock, 10, 10)) for _ in range(10)))
    table = record(model, torch.randn(2, 4), iterations=3, warmup=1)
    # A look at the clock takes 1 us: one ends each direction, and 10 or 20 more mark layers.
    assert table.forward_us == pytest.approx(101)
    assert table.backward_us == pytest.approx(101)
    assert [layer.forward_us for layer in table.layers] == pytest.approx([10.1] * 10, rel=0.1)


def test_times__on_a_real_clock():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    began = time.perf_counter()
    table = record(model, torch.randn(64, 64), iterations=5, warmup=1)
    passed_us = (time.perf_counter() - began) * 1e6
    assert all(layer.forward_us > 0 and layer.backward_us > 0 for layer in table.layers)
    # Five plain and five marked iterations, a warm-up and the first one; medians of the plain ones.
    assert 3 * (table.forward_us + table.backward_us) < passed_us


def test_record__leaves_the_model_as_it_was():
    model = small().train()
    model[0].weight.grad = torch.full_like(model[0].weight, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    record(model, torch.randn(3, 1, 8, 8), loss=lambda out: (out * torch.rand_like(out)).sum(),
           iterations=1, warmup=1)
    random_after = torch.get_rng_state()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[0].weight.grad.eq(7).all() and model[4].weight.grad is None
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    torch.set_rng_state(random)
    torch.randn(3, 1, 8, 8)
    assert torch.equal(torch.get_rng_state(), random_after)


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.calls = nn.Linear(2, 2), nn.Linear(2, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.b(self.a(x)) if self.calls % 2 else self.a(self.b(x))


@pytest.mark.parametrize("model,options,message", [
    (nn.ReLU(), {}, "0 devices"),
    (nn.Linear(2, 2).requires_grad_(False), {"loss": lambda y: y.sum().requires_grad_()},
     "no trainable parameter"),
    (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}), {}, "parameter 'b.weight' got no gradient"),
    (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), {}, "mixes parameter types"),
    (nn.Linear(2, 2), {"iterations": 0}, "at least 1"),
    (Changing(), {}, "same order"),
])
def test_record__refuses(model, options, message):
    if isinstance(model, nn.ModuleDict):
        model.forward = model["a"].forward
    if isinstance(model, nn.Sequential):
        model[1].register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    with pytest.raises(ValueError, match=re.escape(message)):
        record(model, torch.randn(3, 2), **{"iterations": 1, "warmup": 1, **options})
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_yaml__round_trip():
    recorded = record(small(), torch.randn(3, 1, 8, 8), name="tiny: a \"test\"", notes="on CPU, 1 # 2",
                      iterations=2, warmup=1)
    again = Table.from_yaml(recorded.to_yaml())
    assert again.to_yaml() == recorded.to_yaml()
    assert again.name == recorded.name and again.notes == recorded.notes
    assert [layer.tensors for layer in again.layers] == [layer.tensors for layer in recorded.layers]
    for ours, theirs in zip(again.layers, recorded.layers):
        assert ours.forward_us == pytest.approx(theirs.forward_us, abs=0.001)
        assert ours.backward_us == pytest.approx(theirs.backward_us, abs=0.001)


def test_yaml__layout():
    table = Table("n", 32, "3x8x8", "NVIDIA H200", "2.11.0", "2026-01-02", device_scale=5.5, layers=(
        Layer("conv", (9,), 1.5, 2), Layer("a,b", (2, 3), 0, 1)))
    assert table.to_yaml() == (
        'name: "n"\nbatch: 32\nsample: "3x8x8"\ndtype: float32\ndevice: NVIDIA H200\ndevice_scale: 5.5\n'
        'torch: "2.11.0"\ndate: "2026-01-02"\nlayers:\n'
        "  - {name: conv, params: 9, forward_us: 1.500, backward_us: 2.000}\n"
        '  - {name: "a,b", params: 5, tensors: [2, 3], forward_us: 0.000, backward_us: 1.000}\n')
    assert Table.from_yaml(table.to_yaml()) == table


@pytest.mark.parametrize("old,new,message", [
    ("batch: 3", "bach: 3", "line 2"),
    ("name: x", "", "no name"),
    ("name: x", "name: 'x'", "line 1: 'x' is neither plain text nor in double quotes"),
    ("batch: 3", "batch: many", "line 2: 'batch' is many"),
    ("forward_us: 1,", "forward_us: 1.2.3,", "line 9"),
    ("tensors: [36, 4]", "tensors: [36, 5]", "line 9: 'tensors' add up to 41, but 'params' is 40"),
    ("params: 40", "params: -40", "line 9"),
])
def test_yaml__refuses(tmp_path, old, new, message):
    text = ("name: x\nbatch: 3\nsample: s\ndtype: float32\ndevice: d\ntorch: t\ndate: d\nlayers:\n"
            "  - {name: l, params: 40, tensors: [36, 4], forward_us: 1, backward_us: 2}\n")
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert Table.read(path).params == 40
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match="x.yaml: .*" + re.escape(message)):
        Table.read(path)


@pytest.mark.parametrize("build,parameters", [
    (transformer_models.bert_base, 109_482_240),
    (transformer_models.bert_large, 335_141_888),
    (transformer_models.Gpt2, 124_439_808),
    (transformer_models.Transformer, 63_082_496),
])
def test_networks__parameter_counts(build, parameters):
    with torch.device("meta"):
        model = build()
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("build,inputs", [
    (lambda: transformer_models.Bert(2, 8, 2), 1), (lambda: transformer_models.Gpt2(2, 8, 2), 1),
    (lambda: transformer_models.Transformer(2, 8, 2, 16), 2)])
def test_networks__run(build, inputs):
    tokens = tuple(torch.randint(100, (2, 5)) for _ in range(inputs))
    table = record(build(), tokens, iterations=1, warmup=1)
    assert table.layers[0].name == "words"
    assert table.params == sum(p.numel() for p in build().parameters())


def test_models__every_file_reads():
    tables = {path.stem: Table.read(path) for path in sorted((ROOT / "models").glob("*.yaml"))}
    assert len(tables) >= 12
    assert all(table.name == stem for stem, table in tables.items())


def test_record__the_simulator_runs_the_table(tmp_path):
    import json
    import subprocess

    import thalweg.torch

    table = thalweg.torch.record(small(), torch.randn(3, 1, 8, 8), name="mine", iterations=1, warmup=1)
    table.write(tmp_path / "mine.yaml")
    (tmp_path / "scenario.yaml").write_text(
        "name: mine\ntopology: single-switch:hosts=2,host=10G\ntransport: {kind: dctcp}\n"
        "jobs:\n  - {model: mine, scheme: ring, overlap: wait-free, iterations: 1}\n")
    done = subprocess.run([ROOT / "build/release/thalweg", "sim", "run", tmp_path / "scenario.yaml", "--models", tmp_path,
                           "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] is True
