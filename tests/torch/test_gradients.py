"""thalweg.torch: DDP's hook, the layer-wise wrapper and averaging of all ranks in each iteration train as DDP does."""
import copy
import os
import subprocess
import sys
import types

import pytest
import torch
import torch.distributed as dist
from ranks import ROOT, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch
from thalweg.torch import DSSync, GradientState, LayerWise

STEPS = 6


class Network(nn.Module):
    """Has a buffer, a layer that is not always used, and a weight that is used in two places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.spare = nn.Linear(32, 32)
        self.last = nn.Linear(32, 16)
        self.tied = nn.Linear(16, 16, bias=False)
        self.again = nn.Linear(16, 16, bias=False)
        self.again.weight = self.tied.weight

    def forward(self, x, spare=False):
        x = torch.relu(self.norm(self.first(x)))
        if spare:
            x = x + self.spare(x)
        return self.again(torch.tanh(self.tied(self.last(x))))


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator)


def loss_of(model, step, rank, spare):
    images, wanted = batch(step, rank)
    return nn.functional.mse_loss(model(images, spare), wanted)


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train_ddp(rank, state=None, spare=lambda step: step % 2 == 1):
    model = DistributedDataParallel(Network(), find_unused_parameters=True, bucket_cap_mb=0.001)
    if state:
        model.register_comm_hook(state, thalweg.torch.reduce_hook)
    optimizer = make_optimizer(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, rank, spare(step)).backward()
        optimizer.step()
    return model.module


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_on_all_ranks(tensor):
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    return all(torch.equal(tensor, other) for other in others)


def test_hook__straggler_bound_same_on_all_ranks():
    def body(rank, size):
        hooked = flat(train_ddp(rank, GradientState(straggler_bound=0.3)))
        assert same_on_all_ranks(hooked) and hooked.isfinite().all()
        report = thalweg.torch.straggler_report()
        assert report["calls"] >= STEPS and report["exact_calls"] <= report["calls"]

    run_ranks(3, body)


@pytest.mark.parametrize("fields, part", [
    ({"straggler_bound": 1.0}, "straggler_bound: 1.0"),
    ({"straggler_bound": 0.1, "straggler_window": 0}, "straggler_window: 0"),
    ({"straggler_bound": 0.1, "loss_bound": 0.1}, "a loss_bound"),
    ({"straggler_bound": 0.1, "dlcp": True}, "dlcp"),
])
def test_straggler_bound__bad_settings_are_named(fields, part):
    with pytest.raises(ValueError, match=part):
        GradientState(**fields)


def test_hook__exact_is_what_ddp_does_itself():
    def body(rank, size):
        plain = flat(train_ddp(rank))
        for state in (GradientState(), GradientState(dlcp=True)):
            hooked = flat(train_ddp(rank, state))
            assert same_on_all_ranks(hooked)
            assert torch.allclose(plain, hooked, rtol=1e-4, atol=1e-6)

    run_ranks(2, body)


class Bucket:
    def __init__(self, index, count):
        self._index, self._count = index, count

    def index(self):
        return self._index

    def is_last(self):
        return self._index == self._count - 1

    def buffer(self):
        return torch.zeros(4)


@pytest.mark.parametrize("by_layer", [False, True])
def test_hook__one_priority_and_queue_unless_told(monkeypatch, by_layer):
    class Recorder:
        def __init__(self):
            self.calls = []

        def reduce_gradient(self, gradient, **options):
            self.calls.append((options["priority"], options["queue"]))
            future = torch.futures.Future()
            future.set_result([gradient])
            return types.SimpleNamespace(get_future=lambda: future)

    recorder = Recorder()
    monkeypatch.setattr(thalweg.torch, "backend_of", lambda group, device: recorder)
    state = GradientState(loss_bound=0.1, by_layer=by_layer)
    for _ in range(2):  # the number of buckets is known from the second iteration on
        recorder.calls.clear()
        for index in range(7):
            thalweg.torch.reduce_hook(state, Bucket(index, 7)).wait()
    wanted = [(-index, 7 - index) for index in range(7)] if by_layer else [(0, 1)] * 7
    assert recorder.calls == wanted


def test_hook__with_a_bound_parameters_and_buffers_still_go_exactly():
    def body(rank, size):
        model = train_ddp(rank, GradientState(loss_bound=0.3))
        assert flat(model).isfinite().all()
        # Replicas may differ now, but only gradients may lose packets.
        thalweg.torch.resynchronize(model)
        assert same_on_all_ranks(flat(model))
        assert same_on_all_ranks(torch.cat([b.double().flatten() for b in model.buffers()]))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(rank)
        assert same_on_all_ranks(flat(DistributedDataParallel(model).module))

    run_ranks(2, body)


def average_all(model, make_optimizer):
    return DSSync(model, make_optimizer, [[0, 1]], swa_decay=0.0)


def layer_wise(model, make_optimizer):
    return LayerWise(model, make_optimizer, resynchronize_every=4, find_unused_parameters=True)


def train_beside_ddp(rank, network, make_trainer, accumulate=False):
    """Trains with a trainer and with DDP in the same steps; returns both models."""
    reference = DistributedDataParallel(network, find_unused_parameters=True)
    optimizer = make_optimizer(reference.parameters())
    model = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(rank)  # the wrapper gives all ranks the parameters of rank 0
    trainer = make_trainer(model, make_optimizer)
    for step in range(STEPS):
        spare = step % 2 == 1
        optimizer.zero_grad()
        if accumulate:
            with reference.no_sync(), trainer.no_sync():
                loss_of(reference, step + 50, rank, spare).backward()
                loss_of(model, step + 50, rank, spare).backward()
        loss_of(reference, step, rank, spare).backward()
        optimizer.step()
        loss_of(model, step, rank, spare).backward()
        trainer.step()
    trainer.finish()
    return model, network


@pytest.mark.parametrize("make_trainer", [layer_wise, average_all])
@pytest.mark.parametrize("accumulate", [False, True])
def test_trains_as_ddp_does(make_trainer, accumulate):
    def body(rank, size):
        model, reference = train_beside_ddp(rank, Network(), make_trainer, accumulate)
        assert same_on_all_ranks(flat(model))
        torch.testing.assert_close(flat(model), flat(reference), rtol=1e-5, atol=1e-6)

    run_ranks(2, body)


class Attention(nn.Module):
    """The inner module uses a parameter of its child without calling the child."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x, spare=False):
        return self.inner(x[None], x[None], x[None])[0][0]


@pytest.mark.parametrize("make_trainer", [LayerWise, average_all])
def test_a_child_whose_forward_is_not_called_is_waited_for(make_trainer):
    def body(rank, size):
        model, reference = train_beside_ddp(rank, Attention(), make_trainer)
        torch.testing.assert_close(flat(model), flat(reference), rtol=1e-5, atol=1e-7)

    run_ranks(2, body)


def test_layer_wise__a_gradient_of_no_sync_alone_counts():
    def body(rank, size):
        model = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])
        trainer = LayerWise(model, make_optimizer, find_unused_parameters=True)
        before = flat(model)
        with trainer.no_sync():
            model[1](torch.ones(1, 1)).sum().backward()
        model[0](torch.ones(1, 1)).sum().backward()
        trainer.step()
        trainer.finish()
        torch.testing.assert_close(flat(model), before - 0.1)

    run_ranks(2, body)


def test_layer_wise__what_it_cannot_do_is_an_error():
    def body(rank, size):
        model = nn.Linear(4, 4)
        trainer = LayerWise(nn.Sequential(model), make_optimizer)
        model(torch.ones(1, 4)).sum().backward()
        trainer.step()
        model(torch.ones(1, 4)).sum().backward()
        with pytest.raises(RuntimeError, match=r"call step\(\) first"):
            model(torch.ones(1, 4))
        trainer.step()
        trainer.finish()
        twice = model(torch.ones(1, 4)).sum()
        twice.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match=r"has a second gradient before step\(\)"):
            twice.backward()
        trainer.step()
        with pytest.raises(RuntimeError, match=r"0.weight was used without a call of its module's forward\(\)"):
            model.weight.sum().backward()
        trainer.finish()
        unused = LayerWise(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), make_optimizer)
        unused._model[0](torch.ones(1, 4)).sum().backward()
        with pytest.raises(RuntimeError, match="1.weight has no gradient: .*find_unused_parameters=True"):
            unused.step()

    run_ranks(2, body)


def test_layer_wise__in_a_sub_group_leaves_later_groups_alone():
    def body(rank, size):
        some = dist.new_group([0, 1])
        if rank < 2:
            model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            trainer = LayerWise(model, make_optimizer, GradientState(group=some), find_unused_parameters=True)
            model[rank](torch.ones(1, 4)).sum().backward()
            trainer.step()
            trainer.finish()
        everyone = dist.new_group()  # rank 2 calls it too, although it is in one group fewer
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=everyone)
        assert tensor.item() == size

    run_ranks(3, body)


TAGGED = """
import socket, threading, time
import torch
from ranks import run_ranks
from thalweg.torch import GradientState, LayerWise

seen = set()


def listen(packets):
    while True:
        packet = packets.recv(65536)
        if packet[9] == 17 and len(packet) > 1000:  # UDP, with data
            seen.add((packet[1] >> 2, packet[1] & 3))


def train(rank, size):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(7)))
    trainer = LayerWise(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), GradientState(loss_bound=0.1))
    for step in range(3):
        model(torch.randn(8, 64)).square().mean().backward()
        trainer.step()
    trainer.finish()


# What arrives: the protocol is IPv4's, with its header first.
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
packets.bind(("lo", 0x0800))
threading.Thread(target=listen, args=(packets,), daemon=True).start()
run_ranks(2, train)
deadline = time.monotonic() + 30  # for what the listener has not read yet
while time.monotonic() < deadline and len({dscp for dscp, _ in list(seen)} - {59}) < 7:
    time.sleep(0.05)
seen = set(list(seen))
dscps = {dscp for dscp, _ in seen} - {59}  # of the first queue: copies of signals
assert dscps == {51, 43, 35, 27, 19, 11, 3}, seen  # of the seven queues for data, a layer each
assert {ecn for _, ecn in seen} == {0, 2}, seen  # smaller gradients, and larger ones
print("fine", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_layer_wise__packets_are_tagged_by_layer_and_magnitude():
    run = subprocess.run(["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-c",
                          TAGGED], env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests/torch'}"},
                         capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0 and "fine" in run.stdout, run.stderr


def test_error_feedback__what_was_missing_goes_with_the_next_gradient():
    def body(rank, size):
        state = GradientState(loss_bound=0.01, error_feedback=True)  # with nine packets this allows no loss
        gradient = torch.zeros(3000)
        state.start(gradient, 0, key="g").wait()
        state._residuals["g"].fill_(4.0 * rank)
        gradient.fill_(1.0)
        state.start(gradient, 0, key="g").wait()
        assert torch.equal(gradient, torch.full_like(gradient, 3.0))  # the mean of 1 and 1 + 4
        assert not state._residuals["g"].any()
        state = GradientState(loss_bound=0.3, error_feedback=True)
        hooked = flat(train_ddp(rank, state))
        assert hooked.isfinite().all()
        # No residuals are left of the buckets before DDP rebuilt them.
        assert sum(residual.numel() for residual in state._residuals.values()) == hooked.numel()

    run_ranks(2, body)
    with pytest.raises(ValueError, match="error_feedback: True with a loss_bound of 0"):
        GradientState(error_feedback=True)


def test_distributed_optimizer__trains_as_ddp_does():
    def body(rank, size):
        reference = train_ddp(rank, spare=lambda step: True)
        model = Network()
        optimizer = thalweg.DistributedOptimizer(make_optimizer(model.parameters()))
        thalweg.torch.resynchronize(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step, rank, spare=True).backward()
            if step == 3:
                optimizer.synchronize()
            optimizer.step()
        assert same_on_all_ranks(flat(model))
        assert torch.allclose(flat(model), flat(reference), rtol=1e-4, atol=1e-6)
        # A layer that this rank did not use counts as zeros, and no rank waits for it.
        optimizer.zero_grad()
        loss_of(model, STEPS, rank, spare=rank == 1).backward()
        optimizer.step()
        assert same_on_all_ranks(flat(model))

    run_ranks(2, body)


def test_distributed_optimizer__accumulates_and_refuses():
    def body(rank, size):
        model = nn.Linear(4, 4)
        thalweg.torch.resynchronize(model)
        before = model.weight.detach().clone()
        optimizer = thalweg.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), backward_passes_per_step=2)
        for _ in range(2):
            (model(torch.ones(1, 4)) * (rank + 1)).sum().backward()
        optimizer.step()
        assert torch.allclose(before - model.weight, torch.full((4, 4), 3.0))  # twice the mean of 1 and 2
        with pytest.raises(RuntimeError, match="step\\(closure\\)"):
            optimizer.step(lambda: 0.0)

    run_ranks(2, body)
    with pytest.raises(ValueError, match="backward_passes_per_step: 0"):
        thalweg.DistributedOptimizer(torch.optim.SGD([nn.Parameter(torch.ones(1))]), backward_passes_per_step=0)
