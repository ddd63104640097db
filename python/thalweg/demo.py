"""What `make demo` runs: digits trained with Gloo and with Thalweg over the same lossy testbed, and a page about it.

    python -m thalweg.demo [--epochs N] [--loss 0.5%] [--output demo/report.html]

Brings `thalweg testbed up topologies/demo.yaml` up, loses packets on the links between racks, trains
examples/ddp_digits.py over it once with each library, looks at the network's counters all the while, takes it down, prints a
table, and writes one page that needs nothing else. Needs root, or a machine that allows user namespaces.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from thalweg import report
from thalweg.testbed import ROOT, Testbed, TestbedError, Watch, end, end_on_signals, lost, percentile

TOPOLOGY = ROOT / "topologies/demo.yaml"
LIBRARIES = (("Gloo", ["--backend", "gloo"]), ("Thalweg", ["--backend", "thalweg"]),
             ("Thalweg, bound 1 %", ["--backend", "thalweg", "--loss-bound", "0.01"]))


def read_log(path):
    """Of a file that may still be written: whole lines."""
    return [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")] if path.exists() else []


def show(name, log):
    """Where a training is: a line that is written over on a terminal, none elsewhere."""
    if not sys.stderr.isatty() or not log:
        return
    total = log[0]["total"]
    steps = [entry["step"] for entry in log if "step" in entry]
    accuracies = [entry["accuracy"] for entry in log if "accuracy" in entry]
    done = int(30 * min(1, len(steps) / total))
    last = f"{steps[-1] * 1000:6.0f} ms a step" if steps else "starting      "
    print(f"\r{name:20} [{'#' * done}{'.' * (30 - done)}] {len(steps):4}/{total} {last}"
          f" {f'{accuracies[-1]:.1%} right' if accuracies else '':14}", end="", file=sys.stderr, flush=True)


def train(bed, name, options, arguments, folder):
    """One training: its log, the network's samples over it, and the counters it moved."""
    log = Path(folder) / (name.replace(" ", "-") + ".jsonl")
    before = bed.stats()
    watch = Watch(bed.folder)
    process = bed.run([sys.executable, ROOT / "examples/ddp_digits.py", *options, "--epochs", arguments.epochs, "--log", log],
                      limit=arguments.limit, prefix=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    output = []
    reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            time.sleep(0.2)
            show(name, read_log(log))
        reader.join()
    finally:
        end(process)
        samples = watch.stop()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if process.returncode != 0:
        raise TestbedError(f"{name} failed with {process.returncode}:\n{''.join(output)[-4000:]}")
    sent, gone = lost(before, bed.stats())
    entries = read_log(log)
    return {"name": name, "steps": [e["step"] for e in entries if "step" in e],
            "times": [e["at"] for e in entries if "step" in e],
            "accuracy": [(e["at"], e["accuracy"]) for e in entries if "accuracy" in e], "samples": samples,
            "sent": sent, "lost": gone}


def summary(run):
    steps = run["steps"]
    return {"library": run["name"], "steps": len(steps), "p50_ms": percentile(steps, 0.5) * 1e3,
            "p99_ms": percentile(steps, 0.99) * 1e3, "total_s": sum(steps), "accuracy": run["accuracy"][-1][1],
            "frames": run["sent"], "lost": run["lost"]}


def train_all(arguments):
    """With every library over one testbed: the network as it was, and the trainings."""
    with Testbed(TOPOLOGY, name=f"demo{os.getpid()}") as bed, tempfile.TemporaryDirectory() as folder:
        print(bed.said, end="", flush=True)
        network = bed.stats()
        for link in ("leaf0-spine0", "leaf1-spine0"):
            bed.set(link, f"loss={arguments.loss}")
        print("== The same training over it: a small network learns digits, four ranks", flush=True)
        runs = []
        for name, options in LIBRARIES:
            runs.append(train(bed, name, options, arguments, folder))
            row = summary(runs[-1])
            print(f"{name}: {row['steps']} steps in {row['total_s']:.1f} s, {row['accuracy']:.1%} right", flush=True)
    return network, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--loss", default="0.5%", help="of every packet on the links between racks")
    parser.add_argument("--output", type=Path, default=ROOT / "demo/report.html")
    parser.add_argument("--limit", type=int, default=200, help="seconds that one training may take")
    parser.add_argument("--json", type=Path, help="the table, as JSON")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs: {arguments.epochs}; 1 or more is allowed")
    end_on_signals()
    began = time.monotonic()
    print(f"== Two racks on this machine, {arguments.loss} of all packets between them lost", flush=True)
    try:
        network, runs = train_all(arguments)
    except (TestbedError, OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(str(error)) from error
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
