"""The weight average that the averaging strategies keep, and the one model that finish() leaves on all ranks."""
import copy

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from test_dssync import RACKS, batch, sgd, train
from torch import nn
from torch.optim.swa_utils import update_bn

from thalweg.averaging import decay_after
from thalweg.torch import DSSync, LocalSGD

EXACT = {"rtol": 0, "atol": 1e-12}  # of doubles


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()


def models_of(model, trainer, rank, iterations):
    """Trains, and returns the parameters after each iteration's average."""
    seen = []
    for _ in range(iterations):
        model(batch(rank, trainer.iteration).double()).square().sum().backward()
        trainer.step()
        trainer.flush()
        seen.append([p.detach().clone() for p in model.parameters()])
    return seen


def mean_of(models):
    return [torch.stack(parameters).mean(0) for parameters in zip(*models, strict=True)]


def test_decay__is_a_running_mean_until_it_reaches_the_limit():
    assert [decay_after(models, 0.75) for models in range(6)] == [0, 1 / 2, 2 / 3, 0.75, 0.75, 0.75]
    assert decay_after(10, 0) == 0


def running_mean(rank, _size):
    model = linear()
    trainer = DSSync(model, sgd, RACKS, swa_decay=0.99)
    expected = mean_of(models_of(model, trainer, rank, 9))
    for ours, by_hand in zip(trainer._swa, expected, strict=True):
        torch.testing.assert_close(ours, by_hand, **EXACT)
    trainer.finish()
    for ours, by_hand in zip(model.parameters(), expected, strict=True):
        dist.all_reduce(by_hand)
        torch.testing.assert_close(ours.detach(), by_hand / 4, **EXACT)


def test_a_short_training__ends_with_the_mean_of_all_models():
    run_ranks(4, running_mean)


def mean_then_decay(rank, _size):
    model = linear()
    trainer = LocalSGD(model, sgd, every=2, swa_decay=0.75)
    seen = models_of(model, trainer, rank, 7)
    expected = mean_of(seen[:4])  # 4 models have the running mean's weight of 1/4, which is that of the decay
    for parameters in seen[4:]:
        expected = [0.75 * average + 0.25 * p for average, p in zip(expected, parameters, strict=True)]
    for ours, by_hand in zip(trainer._swa, expected, strict=True):
        torch.testing.assert_close(ours, by_hand, **EXACT)


def test_a_longer_training__decays_as_told():
    run_ranks(2, mean_then_decay)


def forget_the_beginning(_rank, _size):
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1000.0)
    trainer = DSSync(model, lambda parameters: torch.optim.SGD(parameters, lr=0.999), [[0, 1]])
    for _ in range(4):  # each step leaves a thousandth of the weight
        (model.weight.square().sum() / 2 + 0 * model(torch.ones(1, 1)).sum()).backward()
        trainer.step()
    trainer.finish()
    return model.weight.item()


def test_initial_parameters__have_no_weight_after_few_steps():
    """The models are 1, 0.001, 0.000001 and nearly 0, so their mean is a quarter; the beginning was 1000."""
    for weight in run_ranks(2, forget_the_beginning):
        assert weight == pytest.approx(0.25, rel=0.01)


class Normalized(nn.Module):
    """Has two layers of batch normalization, a constant that no mean leaves as it is, and a count of its calls."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4),
                                    nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2))
        self.register_buffer("constant", torch.tensor([torch.finfo(torch.float32).min, -torch.inf, 0.1]))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, inputs):
        self.calls += 1
        return self.layers(inputs)


def finish_normalized(rank, batches):
    """Returns the finished model's state, and its state as it would be with the statistics of one process."""
    torch.manual_seed(rank)
    model = Normalized()
    trainer = DSSync(model, sgd, RACKS)
    train(model, trainer, rank, 5)
    if rank == 3:
        model(batch(rank, 99))  # a rank may have seen more than the others
    mine = [p.detach().clone() for p in model.buffers()]
    trainer.finish(batches(rank))
    alone = copy.deepcopy(model)
    update_bn([one for worker in range(4) for one in batches(worker) or ()], alone)
    return model.state_dict(), alone.state_dict(), mine


def as_lists(state):
    return {name: tensor.tolist() for name, tensor in state.items()}


def of_all_ranks(batches):
    def body(rank, _size):
        ours, alone, mine = finish_normalized(rank, batches)
        return as_lists(ours), as_lists(alone), [buffer.tolist() for buffer in mine]

    return run_ranks(4, body)


# How many batches each rank gives.
@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (3, 1, 0, 2), (2, 0, 0, 0)])
def test_finish__recomputes_statistics_as_one_process_would(counts):
    def batches(rank):
        return [batch(rank, 100 + i) for i in range(counts[rank])] or None

    results = of_all_ranks(batches)
    for ours, alone, _ in results:
        assert ours == results[0][0], "the ranks have different models"
        for name, statistic in ours.items():
            if "running" in name or "tracked" in name:
                torch.testing.assert_close(torch.tensor(statistic), torch.tensor(alone[name]))


@pytest.mark.parametrize("batches", [lambda _rank: None, lambda _rank: []])
def test_finish_without_batches__averages_the_statistics_of_all_ranks(batches):
    results = of_all_ranks(batches)
    names = [name for name, _ in Normalized().named_buffers()]
    before = [dict(zip(names, mine, strict=True)) for _, _, mine in results]
    assert before[0]["layers.1.running_mean"] != before[1]["layers.1.running_mean"]
    for ours, _, _ in results:
        assert ours == results[0][0], "the ranks have different models"
        for name in names:
            one = torch.tensor(ours[name])
            if "running" in name:
                torch.testing.assert_close(one, torch.tensor([mine[name] for mine in before]).mean(0))
            else:
                torch.testing.assert_close(one, torch.tensor(before[0][name]), rtol=0, atol=0)
