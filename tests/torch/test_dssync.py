"""DS-Sync on real process groups: which ranks average, changes of the network, checkpoints."""
import copy
import io
import json
import logging
import re
import subprocess
import time

import pytest
import torch
import torch.distributed as dist
from ranks import ROOT, run_ranks
from test_examples import torchrun
from torch import nn

import thalweg
from thalweg._sync import Groups
from thalweg.dssync import DSSync, _InFlight, racks_of_sizes

RACKS = [[0, 1], [2, 3]]
PROGRAM = ROOT / "build/release/thalweg"


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def small_model(seed=None):
    torch.manual_seed(dist.get_rank() if seed is None else seed)  # DSSync gives all ranks the model of rank 0
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def batch(rank, iteration):
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1000 * iteration + rank))


def train(model, trainer, rank, iterations):
    for _ in range(iterations):
        model(batch(rank, trainer.iteration)).square().sum().backward()
        trainer.step()


def average_in_groups(rank, size, options=None):
    """Compares with the same training by hand, with every worker's model on one rank."""
    model = small_model()
    trainer = DSSync(model, sgd, RACKS, pg_options=options)
    replicas = [copy.deepcopy(model) for _ in range(size)]
    period = Groups(RACKS, 1).period()
    train(model, trainer, rank, 7)
    trainer.flush()
    for iteration in range(7):
        for worker, replica in enumerate(replicas):
            optimizer = sgd(replica.parameters())
            optimizer.zero_grad()
            replica(batch(worker, iteration)).square().sum().backward()
            optimizer.step()
        for group in period[iteration % len(period)]:
            for parameters in zip(*(replicas[worker].parameters() for worker in group), strict=True):
                mean = torch.stack([p.detach() for p in parameters]).mean(0)
                for parameter in parameters:
                    parameter.data.copy_(mean)
    for ours, theirs in zip(model.parameters(), replicas[rank].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_groups__average_by_the_schedule():
    run_ranks(4, average_in_groups)


@pytest.fixture
def switch(tmp_path):
    """start(jobs) runs a switch for at most that many jobs and returns its control address."""
    processes = []

    def start(jobs):
        config = tmp_path / "switch.yaml"
        config.write_text(f"control: 127.0.0.1:0\nmax_jobs: {jobs}\n")
        process = subprocess.Popen([PROGRAM, "switch", "--config", config], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process.stdout.readline().split()[1]

    yield start
    for process in processes:
        process.terminate()
        process.wait(timeout=30)


def jobs_at(address):
    done = subprocess.run([PROGRAM, "job", "stats", "--switch", address, "--json"], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)["jobs"]


def wait_for_jobs(address, count):
    """Waits, because the switch may notice late that the connection of a job's first rank has ended."""
    deadline = time.monotonic() + 60
    while len(jobs_at(address)) != count and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(jobs_at(address)) == count


def groups_of(period):
    """The groups of at least two ranks, which average."""
    return {tuple(group) for groups in period for group in groups if len(group) > 1}


def test_groups_over_a_switch__are_its_jobs_as_long_as_their_schedule(switch):
    address = switch(64)
    period = Groups(RACKS, 1).period()
    groups = groups_of(period)

    def body(rank, size):
        average_in_groups(rank, size, thalweg.Options(transport="atp", switch_address=address))
        dist.barrier()  # the groups of all ranks exist now
        if rank == 0:
            jobs = jobs_at(address)
            assert len(jobs) == len(groups)
            # The groups are pairs, whose packets pass the switch and leave it nothing to add up.
            assert sum(job["counters"]["alone"] for job in jobs) > 0, jobs
        dist.barrier()
        model = small_model()
        trainer = DSSync(model, sgd, RACKS, pg_options=thalweg.Options(transport="atp", switch_address=address))
        trainer._groups.adjust([], [1])
        trainer._use_schedule()
        dist.barrier()
        needed = groups_of(trainer.period)
        if rank == 0:
            wait_for_jobs(address, len(groups) + len(needed))
        dist.barrier()

    run_ranks(4, body)
    wait_for_jobs(address, 0)


def test_groups_over_a_switch_that_has_no_room__go_over_tcp_and_say_so(switch):
    address = switch(1)

    def body(rank, size):
        words = io.StringIO()
        handler = logging.StreamHandler(words)
        logging.getLogger("thalweg.dssync").addHandler(handler)
        average_in_groups(rank, size, thalweg.Options(transport="auto", switch_address=address))
        return words.getvalue()

    said = "".join(run_ranks(4, body))
    assert "groups have no switch" in said and "they go over tcp" in said


def finish_alike(rank, _size):
    model = small_model()
    trainer = DSSync(model, sgd, RACKS)
    train(model, trainer, rank, 5)
    trainer.finish([batch(rank, 0)])
    return [tensor.tolist() for tensor in model.state_dict().values()]


def test_finish__all_ranks_have_one_model():
    first, *others = run_ranks(4, finish_alike)
    for other in others:
        for ours, theirs in zip(first, other, strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))


def resume(rank, _size):
    model = small_model()
    trainer = DSSync(model, sgd, RACKS)
    train(model, trainer, rank, 3)
    saved = copy.deepcopy((trainer.state_dict(), model.state_dict()))
    train(model, trainer, rank, 4)
    trainer.flush()
    again = small_model()
    trainer_again = DSSync(again, sgd, RACKS)
    trainer_again.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    train(again, trainer_again, rank, 4)
    trainer_again.flush()
    trainer.finish([batch(rank, 0)])
    trainer_again.finish([batch(rank, 0)])  # its weight average has gone on, too
    for ours, theirs in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_checkpoint__goes_on_as_if_nothing_had_been():
    run_ranks(4, resume)


class SlowLink(DSSync):
    """Reports averages as slow as if rank 1's NIC were slow from iteration 40 on."""

    def _seconds(self):
        groups = [self._group(self._first_window + place) for place in range(self._window)]
        return [0.1 * (len(group) > 1) * (3 if self._first_window + place >= 40 and 1 in group else 1)
                for place, group in enumerate(groups)]


def notice(rank, _size):
    model = small_model()
    trainer = SlowLink(model, sgd, [[0, 1, 2, 3]], window=10)
    train(model, trainer, rank, 80)
    own = {tuple(group) for groups in trainer.period for group in groups if rank in group and len(group) > 1}
    assert len(dist.distributed_c10d._world.pg_map) == len(own) + 1, "groups of another schedule are left"
    return trainer.changes


def test_slow_link__all_change_the_schedule_at_one_iteration():
    first, *others = run_ranks(4, notice)
    assert all(other == first for other in others)
    assert first, "nothing was noticed"
    assert 40 < first[0][0] <= 80


def test_time_in_flight__is_that_of_any_average_and_of_no_gap():
    clock = _InFlight()
    assert clock.seconds(50.0) == 0
    clock.begin(100.0)
    clock.begin(101.0)
    clock.end(103.0)
    assert clock.seconds(103.5) == 3.5
    clock.end(104.0)
    assert clock.seconds(110.0) == 4.0
    clock.begin(110.0)
    clock.end(110.5)
    assert clock.seconds(120.0) == 4.5


BACKWARD_SECONDS = 0.2


class SlowBackward(torch.autograd.Function):
    """Passes its input on, and takes long in the backward pass."""

    @staticmethod
    def forward(_context, tensor):
        return tensor.view_as(tensor)

    @staticmethod
    def backward(_context, gradient):
        time.sleep(BACKWARD_SECONDS)
        return gradient


def compute_long(_rank, _size):
    torch.manual_seed(0)
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    windows = []
    trainer = DSSync(nn.Sequential(first, last), sgd, [[0, 1]], window=3,
                     on_review=lambda _first, seconds, _period: windows.append(seconds))
    for _ in range(3):
        last(SlowBackward.apply(first(torch.ones(1, 3)))).sum().backward()
        trainer.step()
    return windows


def test_sensing__leaves_out_the_time_of_the_backward_pass():
    """The averages of the last layer end while the backward pass still computes; those of the first one begin then."""
    for windows in run_ranks(2, compute_long):
        (seconds,) = windows
        for iteration in range(3):  # the rank that came last did not wait for the other
            assert 0 < min(of_rank[iteration] for of_rank in seconds) < BACKWARD_SECONDS / 2


def other_seed(rank, _size):
    with pytest.raises(ValueError, match="rank 1 has another seed than rank 0: 2, not 1"):
        DSSync(small_model(), sgd, RACKS, seed=2 if rank == 1 else 1)


def test_other_seed__is_named():
    run_ranks(4, other_seed)


def wrong_racks(_rank, _size):
    with pytest.raises(ValueError, match="racks: 3 workers; the world has 2"):
        DSSync(small_model(), sgd, racks_of_sizes([2, 1]))
    with pytest.raises(ValueError, match="worker 1 is named twice"):
        DSSync(small_model(), sgd, [[1], [1]])
    dist.barrier()  # no rank leaves before the other has arrived


def test_racks__must_fit_the_world():
    run_ranks(2, wrong_racks)


@pytest.mark.parametrize(("epochs", "seeds"), [(1, 4), (3, 2)])
def test_example__as_good_as_bsp(epochs, seeds):
    text = torchrun("examples/dssync_digits.py", "--racks", "2,2", "--epochs", str(epochs), "--seeds", str(seeds),
                    ranks=4)
    bsp, ds_sync = map(float, re.findall(r"([0-9.]+)% of the test images right", text))
    assert ds_sync > bsp - 0.5, text
