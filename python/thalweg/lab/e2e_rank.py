"""A rank of `thalweg reproduce e2e` (thalweg/lab/e2e.py): trains digits with each library in turn.

    python -m thalweg.lab.e2e_rank SPEC        SPEC is a JSON object with the fields of Spec

The ranks may form several jobs of consecutive ranks, which train at the same time, each its own
model. The first rank of each job prints a line of JSON for each library: the times of its steps,
the accuracy, and how many packets the whole network sent and lost meanwhile.
"""
import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg
import thalweg.torch
from thalweg.lab import tasks
from thalweg.dssync import DSSync
from thalweg.parameter_server import ParameterServer
from thalweg.task import accuracy
from thalweg.lab.testbed import Control, lost

BATCH = 8               # images per worker and step
RATE, MOMENTUM = 0.05, 0.9
WARM_UP = 3             # first steps, which make connections and plans and are not counted
PROBE_ELEMENTS = 512    # 2 KB
PROBE_WARM_UP = 10      # first probes, which are not counted
LIMIT = datetime.timedelta(seconds=90)  # timeout of any call


@dataclasses.dataclass
class Spec:
    libraries: list
    steps: int
    control: str         # folder of the testbed, which has its control socket
    jobs: int = 1
    racks: tuple = ()    # ranks of each rack, for dssync
    topology: str = ""   # the network, for rat; rank i is host i
    bound: float = 0.01  # loss bound, for dlcp
    straggler_bound: float = 0.05  # for straggler
    line_rate_gbps: float = 0.1
    servers: tuple = ()  # addresses of parameter servers, one per job, for ps
    probes: int = 0      # small allreduces that show the network's tail latency
    # Fields of the request `stall` to the testbed, which comes between two series of probes.
    stall: dict = dataclasses.field(default_factory=dict)


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM)


class DataParallel:
    """DistributedDataParallel over a group.

    Buffers are not shared, because the other libraries here do not share them either.
    """

    def __init__(self, model, group, bound=0.0, straggler_bound=0.0):
        self._model = DistributedDataParallel(model, process_group=group, broadcast_buffers=False)
        if bound > 0 or straggler_bound > 0:
            state = thalweg.torch.GradientState(group, loss_bound=bound,
                                                straggler_bound=straggler_bound)
            self._model.register_comm_hook(state, thalweg.torch.reduce_hook)
        self._optimizer = make_optimizer(self._model.parameters())

    def __call__(self, images):
        return self._model(images)

    def step(self):
        self._optimizer.step()
        self._optimizer.zero_grad()

    def finish(self, _batches):
        pass


class Undistributed:
    """A model that is called directly, while `trainer` communicates."""

    def __init__(self, model, trainer):
        self._model, self._trainer = model, trainer

    def __call__(self, images):
        return self._model(images)

    def step(self):
        self._trainer.step()

    def finish(self, batches):
        if hasattr(self._trainer, "finish"):
            self._trainer.finish(batches)


class Job:
    """The job that this rank belongs to."""

    def __init__(self, spec):
        self.spec = spec
        rank, size = dist.get_rank(), dist.get_world_size()
        self.members = size // spec.jobs
        self.number, self.worker = divmod(rank, self.members)

    def group(self, backend, **options):
        """Makes the process groups of all jobs, and returns this job's.

        All ranks of the world call this together.
        """
        pg_options = thalweg.Options(**options) if backend == "thalweg" else None
        groups = [dist.new_group(list(range(job * self.members, (job + 1) * self.members)),
                                 backend=backend, pg_options=pg_options, timeout=LIMIT)
                  for job in range(self.spec.jobs)]
        return groups[self.number]

    def trainer(self, library, model):
        spec = self.spec
        if library == "gloo":
            return DataParallel(model, self.group("gloo"))
        if library == "thalweg":
            return DataParallel(model, self.group("thalweg"))
        if library == "dlcp":
            group = self.group("thalweg", line_rate_gbps=spec.line_rate_gbps)
            return DataParallel(model, group, spec.bound)
        if library == "straggler":
            return DataParallel(model, self.group("thalweg"), straggler_bound=spec.straggler_bound)
        if library == "atp":
            return DataParallel(model, self.group("thalweg", transport="atp"))
        if library == "rat":
            return DataParallel(model, self.group("thalweg", scheme="rat", topology=spec.topology))
        if library == "ps":
            return Undistributed(model, ParameterServer(
                model, spec.servers[self.number], self.worker, timeout=LIMIT.total_seconds()))
        if library == "dssync":
            return Undistributed(model, DSSync(model, make_optimizer, spec.racks))
        raise ValueError(f"library: {library!r}; gloo, thalweg, dlcp, straggler, atp, rat, ps and dssync are "
                         "allowed")

    def batches(self, images, digits):
        """Yields batches of this worker's share of the images, epoch after epoch without end."""
        images, digits = images[self.worker::self.members], digits[self.worker::self.members]
        for epoch in itertools.count():
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
            for first in range(0, len(images) - BATCH + 1, BATCH):
                some = order[first:first + BATCH]
                yield images[some], digits[some]


def train(job, library, control):
    (images, digits), test = tasks.digits()
    torch.manual_seed(0)
    model = tasks.digits_network()
    trainer = job.trainer(library, model)
    batches = job.batches(images, digits)
    dist.barrier()
    before = control.ask("stats")
    times = []
    for some, labels in itertools.islice(batches, job.spec.steps + WARM_UP):
        began = time.monotonic()
        nn.functional.cross_entropy(trainer(some), labels).backward()
        trainer.step()
        times.append(time.monotonic() - began)
    trainer.finish([images[:256]])
    dist.barrier()
    sent, gone = lost(before, control.ask("stats"))
    if job.worker == 0:
        say({"library": library, "job": job.number, "steps": times[WARM_UP:], "sent": sent,
             "lost": gone, "accuracy": accuracy(model, test)})


def say(result):
    """Prints a line by a single write, so that the lines of ranks that share a pipe do not mix."""
    os.write(sys.stdout.fileno(), (json.dumps(result) + "\n").encode())


def probe(job, control):
    """Times small allreduces with Gloo, on the quiet network and then with hosts that stall."""
    group = job.group("gloo")
    tensor = torch.zeros(PROBE_ELEMENTS)

    def times():
        found = []
        for _ in range(job.spec.probes + PROBE_WARM_UP):
            began = time.monotonic()
            dist.all_reduce(tensor, group=group)
            found.append(time.monotonic() - began)
        return found[PROBE_WARM_UP:]

    quiet = times()
    if job.spec.stall and dist.get_rank() == 0:
        control.ask("stall", **job.spec.stall)
    dist.barrier()
    stalled = times()
    if dist.get_rank() == 0:
        say({"probe": {"quiet": quiet, "stalled": stalled}})


def main():
    spec = Spec(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("thalweg", timeout=LIMIT)
    with contextlib.closing(Control(spec.control)) as control:
        job = Job(spec)
        if spec.probes:
            probe(job, control)
        for library in spec.libraries:
            train(job, library, control)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
