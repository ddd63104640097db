"""Averaging strategies on real process groups, and workers that die and join."""
import os
import signal

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from test_dssync import RACKS, batch, sgd, small_model, train
from torch import nn

from thalweg.members import MOST_ATTEMPTS, NEWCOMER
from thalweg.torch import DSSync, Gossip, LocalSGD, Members

LIMIT_SECONDS = 90  # for what takes ten seconds on an idle machine


def mean_of_all(model):
    tensors = [p.detach().clone() for p in model.parameters()]
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor.div_(dist.get_world_size())
    return tensors


def spread(model):
    """The distance of this rank's model from the mean of all ranks."""
    return sum((p.detach() - m).abs().sum().item() for p, m in zip(model.parameters(), mean_of_all(model), strict=True))


def local_sgd(rank, _size):
    model = small_model()
    trainer = LocalSGD(model, sgd, every=3)
    apart = []
    for _ in range(6):
        train(model, trainer, rank, 1)
        trainer.flush()
        apart.append(spread(model) > 1e-5)
    return apart


def test_local_sgd__averages_each_third_time():
    assert run_ranks(3, local_sgd) == [[True, True, False] * 2] * 3


def gossip(rank, size):
    """Compares with values computed by hand from the graph and all ranks' starting values."""
    model = nn.Linear(1, 1, bias=False)
    trainer = Gossip(model, lambda p: torch.optim.SGD(p, lr=0.0))
    model.weight.data.fill_(rank)
    expected = list(range(size))
    seen = []
    for iteration in range(2):
        model(torch.ones(1, 1)).sum().backward()
        trainer.step()
        trainer.flush()
        distance = 1 << iteration
        expected = [(expected[r] + expected[(r - distance) % size]) / 2 for r in range(size)]
        seen.append((model.weight.item(), expected[rank]))
    return seen


def test_gossip__four_ranks_agree_after_two_iterations():
    for of_rank in run_ranks(4, gossip):
        for ours, by_hand in of_rank:
            assert ours == pytest.approx(by_hand)
        assert of_rank[-1][0] == pytest.approx(1.5)


def with_an_optimizer(rank, _size):
    """One optimizer for the whole model, with a schedule, trains like one optimizer per parameter."""
    models = []
    for whole in (True, False):
        model = small_model()
        if whole:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            trainer = DSSync(model, optimizer, RACKS)
            rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        else:
            trainer = DSSync(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), RACKS)
        train(model, trainer, rank, 1)
        if whole:
            rates.step()
        else:
            for own in trainer._optimizers._own:
                own.param_groups[0]["lr"] = 0.05
        train(model, trainer, rank, 2)
        trainer.flush()
        models.append([p.detach() for p in model.parameters()])
    for ours, theirs in zip(*models, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    with pytest.raises(ValueError, match="no parameter group for a parameter of shape"):
        DSSync(small_model(), torch.optim.SGD([torch.zeros(1)], lr=0.1), RACKS)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler")
def test_an_optimizer_of_the_whole_model__is_followed():
    run_ranks(4, with_an_optimizer)


def live_and_die(port):
    """Ranks 0 to 3 begin, rank 3 dies at iteration 6, and rank 4 joins when the others know. Each returns the generations
    with their workers, its last iteration, its final model and how many models its weight average has."""

    def body(rank, _size):
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        if rank == 4:
            store.wait(["one has left"])
        members = Members(store, f"worker{rank}", "ab"[rank // 2 % 2], start=4 if rank < 4 else None, patience=6.0,
                          timeout=float(LIMIT_SECONDS))
        model = small_model(seed=rank)
        trainer = DSSync(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), members=members, window=4,
                         adapt=False)
        seen, last = [], None
        while trainer.iteration != last:
            now = (members.generation, [member.name for member in members.members], trainer.rho)
            if not seen or seen[-1] != now:
                seen.append(now)
                if "worker3" not in now[1]:
                    store.set("one has left", "1")
                if "worker4" in now[1]:
                    last = trainer.iteration + 5
            model(batch(rank, trainer.iteration)).square().sum().backward()
            if rank == 3 and trainer.iteration == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            trainer.step()
        trainer.finish()
        return seen, last, [p.tolist() for p in model.parameters()], trainer._averaged[0]

    return body


def test_a_newcomer_that_nobody_lets_in__ends_at_its_join_timeout():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match=r"worker late: no job began within join_timeout \(0.2 s\)"):
        Members(store, "late", "a", join_timeout=0.2).form(NEWCOMER)
    dist.PrefixStore("thalweg.members", store).set("generation", "3")
    with pytest.raises(RuntimeError, match=r"worker late: nobody let it join within join_timeout \(0.2 s\)"):
        Members(store, "late", "a", join_timeout=0.2).form(NEWCOMER)


def test_generations_that_fall_apart__end_in_an_error():
    class Trouble:
        formed = 0

        def form(self, _iteration):
            self.formed += 1

        def announce_trouble(self):
            pass

    trainer = DSSync.__new__(DSSync)
    trainer._members, trainer._has_state, trainer.iteration = Trouble(), True, 7

    def fail():
        raise RuntimeError("a worker is gone")

    trainer._take_state = fail
    with pytest.raises(RuntimeError, match=f"iteration 7: {MOST_ATTEMPTS} generations of workers in a row fell apart"):
        trainer._begin_generation()
    assert trainer._members.formed == MOST_ATTEMPTS - 1


def test_a_worker_dies_and_another_joins__the_others_go_on():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = run_ranks(5, live_and_die(server.port), dies=[3], grouped=False, seconds=LIMIT_SECONDS)
    survivors, newcomer = results[:3], results[4]
    names = [[f"worker{i}" for i in some] for some in ((0, 1, 2, 3), (0, 1, 2), (0, 1, 4, 2))]
    for seen, last, model, averaged in survivors:
        assert [members for _, members, _ in seen] == names
        assert all(rho < 1 for _, _, rho in seen)
        assert last == newcomer[1] and last > 11
        assert model == newcomer[2]
        assert averaged >= last - 1  # the death may have cost it an iteration
    assert newcomer[3] >= last - 1, "the newcomer's weight average does not have the models before it joined"
    assert [members for _, members, _ in newcomer[0]] == names[2:]


def loss_of_one(model):
    return model(torch.ones(1, 1)).sum()


def what_it_cannot_do(_rank, _size):
    model = nn.Linear(1, 1, bias=False)
    trainer = LocalSGD(model, sgd, every=1)
    loss_of_one(model).backward()
    with pytest.raises(RuntimeError, match=r"LocalSGD: a forward pass between backward\(\) and step\(\)"):
        loss_of_one(model)
    trainer.step()
    with pytest.raises(RuntimeError, match=r"LocalSGD: weight was used without a call of its module's forward\(\)"):
        model.weight.sum().backward()
    model.weight.grad = None
    trainer.finish()
    before = model.weight.item()
    loss_of_one(model).backward()
    assert model.weight.item() == before and model.weight.grad.item() == 1
    with pytest.raises(RuntimeError, match=r"step\(\) after finish\(\)"):
        trainer.step()


def test_averaging__what_it_cannot_do_is_an_error_and_the_end_is_one():
    run_ranks(2, what_it_cannot_do)


def load_in_flight(rank, _size):
    """Loads a checkpoint while averages are in flight; afterwards neither they nor their times count."""
    model = nn.Linear(1, 1, bias=False)
    trainer = DSSync(model, sgd, [[0, 1]], swa_decay=0.0)
    state = trainer.state_dict()
    loss_of_one(model).backward()
    trainer.step()
    with torch.no_grad():
        model.weight.fill_(5.0)
    trainer.load_state_dict(state)
    trainer.flush()
    assert model.weight.item() == 5.0 and trainer.iteration == 0
    assert not any(trainer._seconds())


def test_dssync__a_checkpoint_may_be_loaded_with_averages_in_flight():
    run_ranks(2, load_in_flight)
