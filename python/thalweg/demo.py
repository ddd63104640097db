"""What `make demo` runs: digits trained with Gloo and with Thalweg over the same lossy testbed, and a page about it.

    python -m thalweg.demo [--epochs N] [--loss 0.5%] [--output demo/report.html]

Brings `thalweg testbed up topologies/demo.yaml` up, loses packets on the links between racks, trains
examples/ddp_digits.py over it once with each library, looks at the network's counters all the while, takes it down, prints a
table, and writes one page that needs nothing else. Needs root, or a machine that allows user namespaces.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from thalweg import report

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
TOPOLOGY = ROOT / "topologies/demo.yaml"
NAME = f"demo{os.getpid()}"
BETWEEN_LOOKS = 0.05  # seconds
LIBRARIES = (("Gloo", ["--backend", "gloo"]), ("Thalweg", ["--backend", "thalweg"]),
             ("Thalweg, bound 1 %", ["--backend", "thalweg", "--loss-bound", "0.01"]))


def testbed(*arguments, **options):
    command, *rest = map(str, arguments)
    return subprocess.run([PROGRAM, "testbed", command, "--name", NAME, *rest], check=True, text=True,
                          capture_output=True, **options).stdout


def stats():
    return json.loads(testbed("stats", "--json"))


class Watch:
    """Looks at the testbed's counters until it is told to stop: `samples` are (seconds, statistics)."""

    def __init__(self, folder):
        self.samples, self.over = [], threading.Event()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(Path(folder) / "control"))
        self.lines = self.socket.makefile("rw")
        self.started = time.monotonic()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.over.wait(BETWEEN_LOOKS):
            print('{"do": "stats"}', file=self.lines, flush=True)
            now = json.loads(self.lines.readline())
            self.samples.append((time.monotonic() - self.started, {key: now[key] for key in ("links", "frames")}))

    def stop(self):
        self.over.set()
        self.thread.join()
        self.lines.close()
        self.socket.close()
        return self.samples


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(name, log, epochs, steps_of_epoch):
    """Where a training is: a line that is written over on a terminal, none elsewhere."""
    if not sys.stderr.isatty():
        return
    steps = [entry["step"] for entry in log if "step" in entry]
    accuracies = [entry["accuracy"] for entry in log if "accuracy" in entry]
    total = epochs * steps_of_epoch
    done = int(30 * min(1, len(steps) / total))
    last = f"{steps[-1] * 1000:6.0f} ms a step" if steps else "starting      "
    print(f"\r{name:20} [{'#' * done}{'.' * (30 - done)}] {len(steps):4}/{total} {last}"
          f" {f'{accuracies[-1]:.1%} right' if accuracies else '':14}", end="", file=sys.stderr, flush=True)


def train(name, options, arguments, folder, ranks):
    """One training: its log, the network's samples over it, and the counters it moved."""
    log = Path(folder) / (name.replace(" ", "-") + ".jsonl")
    before = stats()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    process = subprocess.Popen(
        [PROGRAM, "testbed", "run", "--name", NAME, "--timeout", f"{arguments.limit}s", "--", sys.executable,
         ROOT / "examples/ddp_digits.py", *options, "--epochs", str(arguments.epochs), "--log", log],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watch = Watch(arguments.state)
    output = []
    reader = threading.Thread(target=lambda: output.extend(process.stdout))
    reader.start()
    while process.poll() is None:
        time.sleep(0.2)
        show(name, read_log(log), arguments.epochs, 1437 // ranks // (64 // ranks))
    reader.join()
    samples = watch.stop()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if process.returncode != 0:
        raise SystemExit(f"{name} failed with {process.returncode}:\n{''.join(output)[-4000:]}")
    after = stats()
    entries = read_log(log)
    return {"name": name, "steps": [e["step"] for e in entries if "step" in e],
            "times": [e["at"] for e in entries if "step" in e],
            "accuracy": [(e["at"], e["accuracy"]) for e in entries if "accuracy" in e], "samples": samples,
            "frames": {key: after["frames"][key] - before["frames"][key] for key in after["frames"]}}


def summary(run):
    steps = sorted(run["steps"])
    frames = run["frames"]
    lost = frames["dropped_full"] + frames["dropped_fault"] + frames["dropped_selective"]
    return {"library": run["name"], "steps": len(steps), "p50_ms": steps[len(steps) // 2] * 1e3,
            "p99_ms": steps[min(len(steps) - 1, int(len(steps) * 0.99))] * 1e3, "total_s": sum(steps),
            "accuracy": run["accuracy"][-1][1], "frames": frames["sent"], "lost": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--loss", default="0.5%", help="of every packet on the links between racks")
    parser.add_argument("--output", type=Path, default=ROOT / "demo/report.html")
    parser.add_argument("--limit", type=int, default=200, help="seconds that one training may take")
    parser.add_argument("--json", type=Path, help="the table, as JSON")
    arguments = parser.parse_args()
    began = time.monotonic()
    print(f"== Two racks on this machine, {arguments.loss} of all packets between them lost", flush=True)
    try:
        print(testbed("up", TOPOLOGY), end="", flush=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(error.stderr.strip())
    try:
        network = stats()
        arguments.state = network["state"]
        for link in ("leaf0-spine0", "leaf1-spine0"):
            testbed("set", "link", link, f"loss={arguments.loss}")
        print("== The same training over it: a small network learns digits, four ranks", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            runs = []
            for name, options in LIBRARIES:
                runs.append(train(name, options, arguments, folder, len(network["hosts"])))
                row = summary(runs[-1])
                print(f"{name}: {row['steps']} steps in {row['total_s']:.1f} s, {row['accuracy']:.1%} right", flush=True)
    finally:
        testbed("down")
    rows = [summary(run) for run in runs]
    print(f"\n{'':20} {'step p50':>10} {'p99':>10} {'training':>10} {'accuracy':>9} {'packets':>9} {'lost':>6}")
    for row in rows:
        print(f"{row['library']:20} {row['p50_ms']:7.0f} ms {row['p99_ms']:7.0f} ms {row['total_s']:8.1f} s "
              f"{row['accuracy']:9.1%} {row['frames']:9} {row['lost']:6}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(report.page(network, runs, rows, arguments.loss))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"\nThe page: {arguments.output} ({time.monotonic() - began:.0f} s in all)")


if __name__ == "__main__":
    main()
