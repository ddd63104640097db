"""Children of fork(): a collective in one is an error, it ends quietly, and the training of its parent goes on."""
from test_examples import torchrun

PROGRAM = """
import os, sys, torch, thalweg, torch.distributed as dist
dist.init_process_group('thalweg')

def check():
    one = torch.ones(100_000)
    dist.all_reduce(one)
    assert (one == 2).all()

check()
child = os.fork()
if child == 0:
    try:
        dist.all_reduce(torch.ones(100_000))
    except RuntimeError as error:
        print('child says', error, flush=True)
        sys.exit(7)  # with all that an interpreter does at its end
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
check()
for _ in range(2):
    loader = torch.utils.data.DataLoader(range(100), batch_size=10, num_workers=2, multiprocessing_context='fork')
    assert sum(int(batch.sum()) for batch in loader) == 4950
    check()
print('fine', flush=True)
"""


def test_a_child_that_sums_and_the_workers_of_a_data_loader__leave_the_group_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = torchrun(str(program))
    assert said.count("fine") == 2, said
    assert said.count("child says") == 2 and said.count("make it anew after fork") == 2, said
