"""Trains on handwritten digits with torchft while replicas are killed and one more comes.

    python examples/torchft_digits.py
    python examples/torchft_digits.py --backend gloo

Starts torchft's Lighthouse and four replicas. After a while it kills two of them, and later a fifth
one joins, which gets the model from a survivor. The log says who left, who came, and how long each
took. In the end all replicas hold the same model, bit for bit. The images and the network are
those of ddp_digits.py. Needs torchft (`pip install torchft-nightly`).
"""
import argparse
import hashlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

BATCH = 16  # images a step and replica
REPLICAS = 4
KILLED = (1, 2)
TICK_MS = 20  # how often the Lighthouse looks for a new quorum
JOIN_MS = 2000  # how long it waits for replicas that it knows of
MOST_SECONDS = 240  # that the parent waits for any line of a replica
MARGIN = 100  # steps from the parent's word about the last one until it


# A replica -----------------------------------------------------------------------------------------

def replica(arguments):
    """Trains, once the parent says so, until the step that it names. Prints each step as JSON."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
    from torchft.checkpointing.pg_transport import PGTransport

    from thalweg.lab.tasks import digits as load
    from thalweg.lab.tasks import digits_network as network
    from thalweg.state_transport import StateTransport
    from thalweg.task import accuracy
    from thalweg.torchft import ProcessGroupThalweg

    torch.set_num_threads(1)
    make = ProcessGroupThalweg if arguments.backend == "thalweg" else ProcessGroupGloo
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(arguments.replica)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def load_state(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    (images, digits), test = load()
    say(ready=True)
    sys.stdin.readline()  # "go"
    last = queue.Queue()
    threading.Thread(target=lambda: last.put(int(sys.stdin.readline() or 0)), daemon=True).start()
    limit = timedelta(seconds=30)
    group = make(timeout=limit)
    # How a newcomer gets the state. By default torchft sends it over HTTP.
    heals = {"survivors": lambda: StateTransport(group, limit), "http": lambda: None,
             "group": lambda: PGTransport(group, limit, torch.device("cpu"))}
    heal = heals[arguments.heal]()
    manager = Manager(
        pg=group, checkpoint_transport=heal, min_replica_size=2, replica_id=f"replica{arguments.replica}",
        load_state_dict=load_state, timeout=limit, quorum_timeout=limit,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        store_addr="localhost", store_port=store.port, rank=0, world_size=1)
    if arguments.heal == "survivors":
        heal.share(manager)
    wrapped = DistributedDataParallel(manager, model)
    stepper = Optimizer(manager, optimizer)
    while last.empty() or manager.current_step() < last.queue[0]:
        began = time.monotonic()
        step = manager.current_step()
        # Each replica draws its own images, which differ from step to step.
        draw = torch.Generator().manual_seed(1000 * step + arguments.replica)
        some = torch.randint(len(images), (BATCH,), generator=draw)
        stepper.zero_grad()
        nn.functional.cross_entropy(wrapped(images[some]), digits[some]).backward()
        stepper.step()
        if manager.current_step() > step:
            say(step=manager.current_step(), replicas=manager.num_participants(),
                seconds=time.monotonic() - began)
    parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    say(accuracy=accuracy(model, test), model=hashlib.sha256(parameters).hexdigest()[:16])
    manager.shutdown(wait=False)


def say(**fields):
    print(json.dumps({"at": time.monotonic(), **fields}), flush=True)


# The parent ----------------------------------------------------------------------------------------

class Replica:
    """A process that trains. What it says goes to `said`, with its number."""

    def __init__(self, number, arguments, said, prefix=()):
        self.number = number
        paths = [str(Path(__file__).resolve().parents[1] / "python"), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__, "--backend", arguments.backend, "--heal", arguments.heal,
             "--replica", str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if arguments.verbose else subprocess.DEVNULL,
            text=True, env=os.environ | {"PYTHONPATH": ":".join(filter(None, paths))})
        threading.Thread(target=self._read, args=(said,), daemon=True).start()

    def tell(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def _read(self, said):
        for line in self.process.stdout:
            if line.startswith("{"):
                said.put((self.number, json.loads(line)))
        said.put((self.number, None))


class Training:
    def __init__(self, arguments):
        self.arguments = arguments
        self.said = queue.Queue()
        self.replicas = {}
        self.began = time.monotonic()
        self.step = 0  # the newest
        self.step_seconds = []
        self.ends = {}
        self.spare = REPLICAS  # it has not joined yet

    def log(self, text):
        print(f"{time.monotonic() - self.began:7.2f} s  {text}", flush=True)

    def prepare(self, numbers):
        """Starts processes, which wait for a word."""
        processes = {number: Replica(number, self.arguments, self.said) for number in numbers}
        self.replicas |= processes
        ready = []
        self.until("ready", lambda _, line: ready.append(line) or len(ready) == len(processes))

    def until(self, what, condition):
        """Reads what replicas say until `condition(number, line)` holds, and returns that line."""
        while True:
            try:
                number, line = self.said.get(timeout=MOST_SECONDS)
            except queue.Empty:
                raise SystemExit(f"no replica said anything for {MOST_SECONDS} s: {what}") from None
            if line is None:
                if number in self.replicas and number not in self.ends:
                    raise SystemExit(f"replica {number} ended before it was done: {what} "
                                     "(--verbose shows why)")
                continue
            if number not in self.replicas:
                continue  # it was killed
            if "model" in line:
                self.ends[number] = line
            elif "seconds" in line:
                self.step = max(self.step, line["step"])
                self.step_seconds.append(line["seconds"])
            if condition(number, line):
                return line

    def kill(self, numbers):
        """Returns the seconds until the others have finished a step without them."""
        for number in numbers:
            self.replicas[number].process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for number in numbers:
            self.replicas.pop(number).process.wait()
        left = self.training()
        line = self.until("a step after the kill", lambda _, line: line["at"] > killed and
                          line.get("replicas") == left)
        seconds = line["at"] - killed
        self.log(f"replicas {', '.join(map(str, numbers))} left (killed): the next step, "
                 f"{line['step']}, ended {seconds:.2f} s later with {left} replicas")
        return seconds

    def add(self, number):
        """Returns the seconds until a new replica has finished a step with the others."""
        self.spare = None
        self.replicas[number].tell("go")
        began = time.monotonic()
        all_of_them = len(self.replicas)
        line = self.until("a step of the newcomer", lambda who, line: who == number and
                          line.get("replicas") == all_of_them)
        seconds = line["at"] - began
        self.log(f"replica {number} came: it has the model and has ended step {line['step']} with "
                 f"{all_of_them} replicas, {seconds:.2f} s after it was told to join")
        return seconds

    def training(self):
        """How many replicas train: all but the spare one."""
        return len(self.replicas) - (self.spare is not None)

    def steps_of_all(self, count):
        """Returns the median seconds of steps that all replicas make together."""
        self.step_seconds.clear()
        seen = [0]

        def enough(_number, line):
            seen[0] += line.get("replicas") == self.training()
            return seen[0] >= count * self.training()
        self.until(f"{count} steps", enough)
        return statistics.median(self.step_seconds)


def train(arguments, training):
    training.prepare(range(REPLICAS + 1))  # the last one waits
    for number in range(REPLICAS):
        training.replicas[number].tell("go")
    training.until("the first step", lambda _, line: line.get("replicas") == REPLICAS)
    training.log(f"{REPLICAS} replicas train together over {arguments.backend}")
    result = {"backend": arguments.backend, "step_s": training.steps_of_all(arguments.between)}
    training.log(f"a step takes {result['step_s'] * 1e3:.1f} ms (median)")
    result["kill_to_step_s"] = training.kill(KILLED)
    training.steps_of_all(arguments.between)
    result["join_to_step_s"] = training.add(REPLICAS)
    last = max(arguments.steps, training.step + MARGIN)
    for one in training.replicas.values():
        one.tell(last)
    training.until("the end", lambda *_: len(training.ends) == len(training.replicas))
    models = {line["model"] for line in training.ends.values()}
    right = min(line["accuracy"] for line in training.ends.values())
    result |= {"accuracy": right, "models": len(models)}
    same = "the same model, bit for bit" if len(models) == 1 else f"{len(models)} DIFFERENT models"
    training.log(f"{len(training.ends)} replicas hold {same}: {right:.1%} of the test images right "
                 f"after {last} steps")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result) + "\n", encoding="utf-8")
    return len(models) == 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", choices=("thalweg", "gloo"), default="thalweg")
    parser.add_argument("--steps", type=int, default=400, help="of the model, at least")
    parser.add_argument("--between", type=int, default=20, help="steps before the kill and after it")
    parser.add_argument("--heartbeat-ms", type=int, default=1000,
                        help="the Lighthouse takes a replica for dead after this long")
    parser.add_argument("--heal", choices=("survivors", "group", "http"),
                        help="how a newcomer gets the model: from all survivors (with thalweg, and then the "
                             "default), from one over the process group, or from one over HTTP")
    parser.add_argument("--json", help="write the times there")
    parser.add_argument("--verbose", action="store_true", help="show what torchft logs")
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)  # how the parent starts one
    arguments = parser.parse_args()
    arguments.heal = arguments.heal or ("survivors" if arguments.backend == "thalweg" else "group")
    if arguments.heal == "survivors" and arguments.backend != "thalweg":
        parser.error("--heal: survivors; with --backend gloo, group and http are allowed")
    for name in ("steps", "between"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: {getattr(arguments, name)}; 1 or more is allowed")
    if arguments.heartbeat_ms < 200:
        parser.error(f"--heartbeat-ms: {arguments.heartbeat_ms}; 200 or more is allowed, since "
                     "replicas send a sign of life every 100 ms")
    return arguments


def main():
    arguments = parse()
    os.environ.setdefault("RUST_LOG", "info" if arguments.verbose else "error")
    if arguments.replica is not None:
        replica(arguments)
        return
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="0.0.0.0:0", min_replicas=2, join_timeout_ms=JOIN_MS,
                                  quorum_tick_ms=TICK_MS, heartbeat_timeout_ms=arguments.heartbeat_ms)
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse.address()
    training = Training(arguments)
    try:
        same = train(arguments, training)
    finally:
        for one in training.replicas.values():
            one.process.kill()
            one.process.wait()
        lighthouse.shutdown()
    sys.exit(not same)


if __name__ == "__main__":
    main()
