"""torchrun starts all ranks again when one dies: the group meets anew, at the same store and the same metrics port."""
import re

from ranks import two_free_ports
from test_examples import torchrun

PROGRAM = """
import os, signal, torch, thalweg, torch.distributed as dist
dist.init_process_group('thalweg')
def say(*words):  # in one piece: ranks share the output, and print() may write word by word
    os.write(1, (' '.join(map(str, words)) + chr(10)).encode())
attempt, rank = int(os.environ['TORCHELASTIC_RESTART_COUNT']), dist.get_rank()
for step in range(3):
    one = torch.ones(100_000)
    try:
        dist.all_reduce(one)
    except thalweg.PeerLost as error:
        say('attempt', attempt, 'rank', rank, 'lost', error.rank)
        raise
    assert (one == 2).all()
    say('attempt', attempt, 'rank', rank, 'step', step)
    if attempt < 2 and rank == 1 and step == 1:
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""


def test_a_rank_that_dies_twice__the_third_attempt_ends_well(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_METRICS", f":{two_free_ports()}")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = torchrun("--max-restarts", "2", str(program))
    done = re.findall(r"attempt (\d) rank (\d) step (\d)", said)
    for attempt in "012":
        steps = "012" if attempt == "2" else "01"
        assert {(rank, step) for of, rank, step in done if of == attempt} >= {(rank, step) for rank in "01" for step in steps}, said
    assert not any(attempt != "2" and step == "2" for attempt, _, step in done), said
