"""examples/allreduce: a rank dies, hangs or leaves, and the others continue."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from test_run import PROGRAM, ROOT, by_rank, wait_until

EXAMPLE = ROOT / "build/release/examples/allreduce"
RANKS = 4
DEADLINE_S = 5  # of the calls in the example
WINDOW_S = 2  # of the example's shrink()


class Job:
    """`thalweg run` of the example; its lines can be read while it runs."""

    def __init__(self, tmp_path, *more, ranks=RANKS, iterations=10**9, **variables):
        self.output = tmp_path / "output"
        self.process = subprocess.Popen(
            [PROGRAM, "run", "-n", str(ranks), "--keep-going", "--", EXAMPLE, str(iterations), *more],
            stdout=self.output.open("w"), stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **variables})

    def lines(self):
        return by_rank(re.sub(r"(?m)^(?!\[\d+\] ).*\n?", "", self.output.read_text()))

    def pid_of(self, rank):
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                if os.readlink(process / "exe") != str(EXAMPLE.resolve()):
                    continue
                parents = parents_of(int(process.name))
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
            if self.process.pid in parents and f"THALWEG_RANK={rank}".encode() in environment:
                return int(process.name)
        return None

    def wait_for(self, holds, seconds=15):
        deadline = time.monotonic() + seconds
        while not holds(self.lines()):
            assert time.monotonic() < deadline, self.output.read_text()[-3000:]
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def parents_of(pid):
    parents = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        parents.append(pid)
    return parents


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    job.wait_for(lambda lines: len(lines) == RANKS and all(len(of) > 3 for of in lines.values()))
    yield job
    job.stop()


def failures(lines):
    return [line for line in lines if "ranks, sum" not in line]


def check_survivors(job, dead, left):
    """Every survivor names a dead rank, and later sums are over the ranks that are left."""
    survivors = [r for r in range(RANKS) if r not in dead]

    def went_on(lines):
        return all(lines[r][-1].endswith(f"{left} ranks, sum {left}") for r in survivors)

    job.wait_for(went_on, DEADLINE_S + 6 * WINDOW_S + 10)
    for rank in survivors:
        said = failures(job.lines()[rank])
        assert said, rank
        assert any(f"rank {d}" in line for line in said for d in dead), said
    return survivors


@pytest.mark.parametrize("rank", range(RANKS))
def test_kill__survivors_name_the_rank_shrink_and_go_on(job, rank):
    os.kill(job.pid_of(rank), signal.SIGKILL)
    began = time.monotonic()
    job.wait_for(lambda lines: all(failures(lines[r]) for r in range(RANKS) if r != rank), DEADLINE_S)
    assert time.monotonic() - began < DEADLINE_S
    for survivor in check_survivors(job, [rank], RANKS - 1):
        said = failures(job.lines()[survivor])
        assert len(said) == 1 and f"rank {rank} is lost" in said[0], said


@pytest.mark.parametrize("rank", [0, 2])
def test_hang__survivors_name_the_rank_at_the_deadline(job, rank):
    pid = job.pid_of(rank)
    os.kill(pid, signal.SIGSTOP)
    try:
        for survivor in check_survivors(job, [rank], RANKS - 1):
            said = failures(job.lines()[survivor])
            assert f"rank {rank} is connected and does not answer" in said[0], said
    finally:
        os.kill(pid, signal.SIGCONT)
    # The rank that hung is no longer in the group. It cannot come back, and says so.
    job.wait_for(lambda lines: any("came too late" in line or "lost" in line for line in failures(lines[rank])))


@contextlib.contextmanager
def running_switch(folder):
    """Runs a switch, and gives the address of its control socket."""
    config = folder / "switch.yaml"
    config.write_text("control: 127.0.0.1:0\n")
    process = subprocess.Popen([PROGRAM, "switch", "--config", config], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("transport", ["tcp", "dlcp", "atp"])
def test_hang_amid_a_large_sum__all_name_the_rank_that_stopped(tmp_path, transport, rank):
    """32 MB in flight between three ranks: the neighbours of the stopped one wait for it, and it is the one that is named. When it
    goes on, it says the same, and names nobody else."""
    with running_switch(tmp_path) if transport == "atp" else contextlib.nullcontext() as address:
        job = Job(tmp_path, str(8 << 20), str(DEADLINE_S), transport, ranks=3, THALWEG_SWITCH=address or "")
        survivors = [other for other in range(3) if other != rank]
        try:
            job.wait_for(lambda lines: len(lines) == 3 and all(lines.values()), 60)
            pid = job.pid_of(rank)
            time.sleep(0.2)  # within a sum: the calls were compared
            os.kill(pid, signal.SIGSTOP)
            try:
                job.wait_for(lambda lines: all(failures(lines[one]) for one in survivors), 3 * DEADLINE_S)
                said = [failures(job.lines()[one])[0].partition(": ")[2] for one in survivors]
                # The rank next to the stopped one says that it hangs, and the other one, if its words come first, whom that one
                # waits for.
                assert re.search(rf"(: rank {rank} is connected and does not answer: it hangs|waits for rank {rank})$", said[0]), said
                assert said[0] == said[1], said
            finally:
                os.kill(pid, signal.SIGCONT)
            job.wait_for(lambda lines: failures(lines[rank]), 10)
            assert failures(job.lines()[rank])[0].partition(": ")[2] == said[0]
        finally:
            job.stop()


def test_two_die_one_after_the_other__the_rest_goes_on(job):
    os.kill(job.pid_of(1), signal.SIGKILL)
    time.sleep(0.5)  # the others are shrinking
    os.kill(job.pid_of(0), signal.SIGKILL)
    check_survivors(job, [0, 1], RANKS - 2)


def test_exit__a_rank_that_ends_without_leaving_is_named(job):
    os.kill(job.pid_of(3), signal.SIGTERM)  # no handler: the process just ends
    for survivor in check_survivors(job, [3], RANKS - 1):
        assert "rank 3 is lost" in failures(job.lines()[survivor])[0]


def test_store_in_rank_0__its_death_ends_the_job_with_words(tmp_path):
    """Without `thalweg run` the store is in rank 0, and shrink() needs the store."""
    port = free_port()
    outputs = [(tmp_path / str(r)).open("w+") for r in range(3)]
    ranks = [subprocess.Popen([EXAMPLE, str(10**9)], stdout=outputs[r], stderr=subprocess.STDOUT,
                              env={"THALWEG_RANK": str(r), "THALWEG_SIZE": "3", "THALWEG_STORE": f"127.0.0.1:{port}"})
             for r in range(3)]
    try:
        wait_until(lambda: all(Path(o.name).read_text().count("3 ranks, sum 3") > 3 for o in outputs))
        ranks[0].kill()
        for rank in (1, 2):
            assert ranks[rank].wait(timeout=DEADLINE_S + 4 * WINDOW_S) == 1
            said = failures(Path(outputs[rank].name).read_text().splitlines())
            assert "rank 0 is lost" in said[0], said
            assert said[1].startswith("shrink: ") and f"the store at 127.0.0.1:{port}" in said[1], said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_all_well__every_rank_sums_and_ends(tmp_path):
    job = Job(tmp_path, ranks=3, iterations=5)
    assert job.process.wait(timeout=30) == 0
    assert job.lines() == {r: [f"iteration {i}: 3 ranks, sum 3" for i in range(5)] for r in range(3)}


@pytest.mark.parametrize("keys, words", [("aa", None), ("ab", "wrong key")])
def test_ranks_of_a_job_with_a_key_must_hold_it(tmp_path, keys, words):
    for rank, digit in enumerate(keys):
        (tmp_path / f"key{rank}").write_text(32 * digit + "\n")
    own = f"THALWEG_KEY_FILE={tmp_path}/key$THALWEG_RANK exec {EXAMPLE} 3"
    done = subprocess.run([PROGRAM, "run", "-n", "2", "--", "sh", "-c", own], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "THALWEG_KEY_FILE": str(tmp_path / "key0")})
    if words is None:
        assert done.returncode == 0 and done.stdout.count("2 ranks, sum") == 6, done.stdout + done.stderr
    else:
        assert done.returncode != 0 and words in done.stdout + done.stderr, done.stdout + done.stderr
