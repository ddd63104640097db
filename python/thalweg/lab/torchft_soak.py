"""A torchft training among the jobs of tools/soak: replicas on the hosts of a testbed die and come back.

The replicas are those of examples/torchft_digits.py. In the end, when nothing fails any more, all hold
the same model, bit for bit, and it is as good as one that trained undisturbed.
"""
import importlib.util
import os
import queue
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from thalweg.lab.testbed import end, start

ROOT = Path(__file__).resolve().parents[3]
LIGHTHOUSE_PORT = 29510
LIGHTHOUSE = """
import time
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="0.0.0.0:{port}", min_replicas=2, join_timeout_ms=2000, quorum_tick_ms=20, heartbeat_timeout_ms=2000)
print("listens", flush=True)
time.sleep(1e6)
"""
READY_SECONDS = 120  # to start a replica, on a busy machine
STEP_SECONDS = 100   # without a finished step of anybody, that is a hang
LEAST_STEPS = 300
MARGIN = 60          # steps from the word about the last one until it
ACCURACY = 0.9       # reached without faults after LEAST_STEPS
BETWEEN = (1.0, 4.0)


def available():
    return importlib.util.find_spec("torchft") is not None


def _example():
    spec = importlib.util.spec_from_file_location("torchft_digits", ROOT / "examples/torchft_digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Violation(Exception):
    pass


class TorchftTraining:
    """One training. `inside(host)` is the command that runs a program on a host; `fault()` injects one of the network."""

    def __init__(self, random, replicas, inside, fault, faults):
        self.random, self.count, self.inside, self.fault, self.faults = random, replicas, inside, fault, faults
        self.example = _example()
        self.said = queue.Queue()
        self.replicas, self.ready, self.ends = {}, set(), {}
        self.lighthouse = None
        self.step, self.step_at = 0, time.monotonic()
        self.together = 0  # replicas of the newest step
        self.restarted = 0  # replicas that ended by themselves

    def start_lighthouse(self):
        self.lighthouse = start([*self.inside(0), sys.executable, "-c", LIGHTHOUSE.format(port=LIGHTHOUSE_PORT)],
                                stdout=-1, text=True, stderr=-3)
        if self.lighthouse.stdout.readline().strip() != "listens":
            raise Violation("the Lighthouse does not start")

    def start_replica(self, number):
        arguments = SimpleNamespace(backend="thalweg", heal="survivors", verbose=False)
        self.ready.discard(number)
        # torchft tells others its host's name, so a host is called by its address.
        called = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', f"10.77.0.{number + 1}")
        self.replicas[number] = self.example.Replica(number, arguments, self.said, (*self.inside(number), *called))

    def listen(self, seconds, until=lambda: False):
        """Takes what replicas say, for so long or until the condition holds. Returns whether it holds."""
        limit = time.monotonic() + seconds
        while not until():
            try:
                number, line = self.said.get(timeout=max(0.01, min(0.2, limit - time.monotonic())))
            except queue.Empty:
                number, line = None, None
            if line is not None and number in self.replicas:
                self.take(number, line)
            self.look_after()
            if time.monotonic() > limit:
                return until()
        return True

    def take(self, number, line):
        if "ready" in line:
            self.ready.add(number)
            self.replicas[number].tell("go")
        elif "model" in line:
            self.ends[number] = line
        elif line["step"] >= self.step:
            self.step, self.together, self.step_at = line["step"], line["replicas"], time.monotonic()

    def look_after(self):
        """Starts replicas again that ended by themselves, as a launcher does, and looks for a hang."""
        for number, one in list(self.replicas.items()):
            if one.process.poll() is not None and number not in self.ends:
                self.restarted += 1
                self.start_replica(number)
        if len(self.ready & set(self.replicas)) < 2:
            self.step_at = time.monotonic()  # too few to train
        if not self.ends and time.monotonic() - self.step_at > STEP_SECONDS:
            raise Violation(f"torchft: no step for {STEP_SECONDS} s after step {self.step}, with {len(self.replicas)} replicas")

    def torment(self):
        kind = self.random.choice(("network", "network", "kill", "join", "lighthouse"))
        if kind == "network":
            self.fault()
            return
        if kind == "kill" and len(self.replicas) > 2:
            victim = self.random.choice(sorted(self.replicas))
            one = self.replicas.pop(victim)
            one.process.kill()
            one.process.wait()
        elif kind == "join" and len(self.replicas) < self.count:
            self.start_replica(self.random.choice(sorted(set(range(self.count)) - set(self.replicas))))
        elif kind == "lighthouse" and self.random.random() < 0.3:
            end(self.lighthouse)
            self.start_lighthouse()
        else:
            return
        self.faults[f"torchft {kind}"] += 1

    def run(self, seconds, heal):
        """Trains, torments for so long, heals and lets it end. Returns the number of steps."""
        address = f"http://10.77.0.1:{LIGHTHOUSE_PORT}"
        os.environ |= {"TORCHFT_LIGHTHOUSE": address, "TORCHFT_QUORUM_RETRIES": "20", "RUST_LOG": "error"}
        os.environ.pop("THALWEG_BACKEND", None)  # tools/soak itself needs no backend; its replicas do
        try:
            self.start_lighthouse()
            for number in range(self.count):
                self.start_replica(number)
            if not self.listen(READY_SECONDS, lambda: self.step > 3):
                raise Violation("torchft: no step is finished")
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                self.torment()
                self.listen(self.random.uniform(*BETWEEN))
            self.finish(heal)
            return self.step
        finally:
            for one in self.replicas.values():
                one.process.kill()
                one.process.wait()
            if self.lighthouse is not None:
                end(self.lighthouse)

    def finish(self, heal):
        heal()
        for number in set(range(self.count)) - set(self.replicas):
            self.start_replica(number)
        reached = self.step
        if not self.listen(READY_SECONDS, lambda: self.together == self.count and self.step > reached + 3):
            raise Violation(f"torchft: the {self.count} replicas do not come together after step {reached}")
        last = max(LEAST_STEPS, self.step + MARGIN)
        for one in self.replicas.values():
            one.tell(last)
        if not self.listen(READY_SECONDS + last - self.step, lambda: len(self.ends) == self.count):
            raise Violation(f"torchft: only replicas {sorted(self.ends)} come to an end at step {last}")
        models = {line["model"] for line in self.ends.values()}
        worst = min(line["accuracy"] for line in self.ends.values())
        if len(models) != 1:
            raise Violation(f"torchft: {len(models)} different models after step {last}: {self.ends}")
        if worst < ACCURACY:
            raise Violation(f"torchft: {worst:.1%} right after step {last}; without faults it is above {ACCURACY:.0%}")
