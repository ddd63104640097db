"""Failures give an error that tells what to do, on every rank and in time."""
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import thalweg
import thalweg.torch


def error_of(call):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    return "no error"


def test_shapes_that_differ__both_ranks_are_told_both():
    def body(rank, size):
        return error_of(lambda: dist.all_reduce(torch.zeros(10 + rank)))

    for words in run_ranks(2, body):
        assert "10 float32" in words and "11 float32" in words, words


def test_a_rank_that_dies__the_others_are_told_at_once():
    def body(rank, size):
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        started = time.monotonic()
        words = error_of(lambda: dist.all_reduce(torch.zeros(1000)))
        again = error_of(lambda: dist.barrier())
        return words, again, time.monotonic() - started

    results = run_ranks(3, body, dies=[1])
    for words, again, seconds in (results[0], results[2]):
        assert "rank 1" in words and "rank 1" in again and seconds < 10, words


def test_a_rank_that_does_not_call__the_timeout_ends_it():
    def body(rank, size):
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank == 1:
            time.sleep(2)
            return "", 0
        started = time.monotonic()
        words = error_of(lambda: dist.all_reduce(torch.zeros(1000), group=group))
        return words, time.monotonic() - started

    words, seconds = run_ranks(2, body)[0]
    assert "rank 1" in words and "Timed out" in words and 0.5 < seconds < 3, words


@pytest.mark.parametrize("seconds,said", [(1, "1.00 s"), (1.5, "1.50 s"), (0.25, "250 ms")])
def test_a_timeout__is_said_as_it_was_given(seconds, said):
    """Not what was left of it when the wait began, nor in another unit for another layer."""
    def body(rank, size):
        group = dist.new_group(timeout=timedelta(seconds=seconds))
        dist.barrier(group)
        if rank == 1:
            time.sleep(2 * seconds)
            return ""
        return error_of(lambda: dist.all_reduce(torch.zeros(1000), group=group))

    words = run_ranks(2, body)[0]
    assert f"not over within {said}" in words and "rank 1" in words, words


def test_a_work_may_be_waited_for_a_while_and_then_aborted():
    def body(rank, size):
        if rank == 1:
            time.sleep(1)
            return "", "", ""
        work = dist.all_reduce(torch.zeros(1000), async_op=True)
        late = error_of(lambda: work.wait(timedelta(milliseconds=50)))
        dist.distributed_c10d._abort_process_group()
        return late, error_of(work.wait), error_of(lambda: work.get_future().wait())

    late, aborted, future = run_ranks(2, body)[0]
    assert "Timed out waiting 50ms" in late and "has left" in aborted and "has left" in future


def test_monitored_barrier__names_who_is_missing():
    def body(rank, size):
        group = dist.group.WORLD
        group.monitored_barrier()
        if rank == 2:
            time.sleep(1)
            return ""
        return error_of(lambda: group.monitored_barrier(timedelta(milliseconds=500), wait_all_ranks=True))

    first, second, _ = run_ranks(3, body)
    assert "Ranks 2 failed to pass monitoredBarrier in 500 ms" in first
    assert "Rank 1 successfully reached monitoredBarrier, but received errors" in second


def test_arguments_that_make_no_sense():
    def body(rank, size):
        group = dist.group.WORLD
        state = thalweg.torch.GradientState(loss_bound=0.1)
        return [
            error_of(lambda: dist.send(torch.zeros(1), 1 - rank, tag=1 << 30)),
            error_of(lambda: state.start(torch.zeros(4, dtype=torch.int32), 0)),
            error_of(lambda: thalweg.torch.GradientState(loss_bound=1.0)),
            error_of(lambda: thalweg.torch.GradientState(loss_bound=0.1, result_loss_bound=0.2)),
            error_of(lambda: dist.all_reduce(torch.zeros(4).to(torch.float8_e4m3fnuz))),
            error_of(lambda: group.allgather([[torch.zeros(2)]], [torch.zeros(2)])),
            error_of(lambda: dist.all_reduce(torch.eye(4).to_sparse(), dist.ReduceOp.MAX)),
            error_of(lambda: thalweg.Options(transport="udp")),
            error_of(lambda: dist.new_group(pg_options=object())),
        ]

    for found in run_ranks(2, body):
        wanted = ["tag 1073741824; from 0 to", "loss_bound: 0.1 on a gradient of torch.int32",
                  "loss_bound: 1.0; from 0 to below 1", "result_loss_bound: 0.2; from 0 to 0.1",
                  "no reduction of Float8_e4m3fnuz", "1 outputs; one for each of 2",
                  "sparse tensors; SUM and AVG are allowed", "transport: 'udp'", "takes thalweg.Options"]
        for words, some in zip(found, wanted, strict=True):
            assert some in words


def test_topology__may_be_a_file_that_all_ranks_read(tmp_path):
    shorthand = "single-switch:hosts=2,host=1G"
    assert thalweg.Options(topology=shorthand).topology_text() == shorthand
    with pytest.raises(ValueError, match="topology: '/nowhere/net.yaml'.*a YAML file that every rank can read, or a shorthand"):
        thalweg.Options(topology="/nowhere/net.yaml").topology_text()
    with pytest.raises(ValueError, match="topology: 'sss.*File name too long.*or a shorthand"):
        thalweg.Options(topology="s" * 300).topology_text()
    text = "{hosts: [{name: a}], links: [" + "{between: [a/b, s], rate: 1G}, " * 20 + "]}"
    assert thalweg.Options(topology=text).topology_text() == text + "\n"
    file = tmp_path / "net.yaml"
    file.write_text("hosts: [{name: a}, {name: b}]\nswitches: [{name: s}]\n"
                    "links: [{between: [a, s], rate: 1G}, {between: [b, s], rate: 1G}]\n")

    def body(rank, size):
        values = torch.ones(4)
        dist.all_reduce(values)
        return values.tolist()

    assert run_ranks(2, body, thalweg.Options(topology=str(file), scheme="ring")) == [[2.0] * 4] * 2


@pytest.mark.parametrize(("name", "value", "wanted"), [
    ("THALWEG_KEY_FILE", "/nonexistent", "/nonexistent"),
    ("THALWEG_INTERFACE", "nothere0", "interface 'nothere0' does not exist; there are: "),
    ("THALWEG_SHARED_MEMORY", "yes", "THALWEG_SHARED_MEMORY: 'yes' is not allowed: 0 or 1"),
])
def test_an_environment_that_makes_no_sense(name, value, wanted):
    with pytest.raises(AssertionError) as error:
        run_ranks(1, lambda rank, size: None, environment={name: value})
    assert wanted in str(error.value)


def test_no_group__the_hook_says_so():
    with pytest.raises(ValueError, match="init_process_group"):
        thalweg.torch.GradientState().start(torch.zeros(1), 0)
