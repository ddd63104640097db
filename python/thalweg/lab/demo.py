"""The program of `make demo`: trains digits with Gloo and with Thalweg over the same lossy testbed.

    python -m thalweg.lab.demo [--epochs N] [--loss 0.5%] [--bound 1%] [--output demo/report.html]

It brings up the testbed of topologies/demo.yaml, makes the links between racks lose packets, and
runs examples/ddp_digits.py over it with Gloo, with Thalweg, and with Thalweg that is told the
network, while it samples the network's counters. Rates are so low that two cores are idle most of
the time: what is compared is the network. `--bound` adds a run whose gradients may lose packets.
Then it takes the testbed down, prints a table, and writes a self-contained HTML page. Needs root,
or a machine that allows user namespaces.
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

from thalweg.lab import demo_page
from thalweg.lab.demo_words import first_line
from thalweg.lab.progress import Progress
from thalweg.lab.testbed import (ROOT, Testbed, TestbedError, Watch, end, end_on_signals, lost,
                                 percentile)

TOPOLOGY = ROOT / "topologies/demo.yaml"
PLANNED = "Thalweg, told the network"
NOT_COUNTED = 3  # first steps of a training: they make connections, and DDP lays out its buckets
LOSSY_LINKS = ("leaf0-spine0", "leaf1-spine0")  # a packet between racks passes both
SLOWEST_LINK_GBPS = 0.025  # of TOPOLOGY; virtual interfaces do not tell DLCP


def share(text):
    """The share that a percentage states: 0.005 for 0.5%."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1
    if not text.endswith("%") or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}'; a percentage from 0% to below 100% is allowed, as in 0.5%")
    return value


def libraries(bound):
    """Names of the trainings, and the options that examples/ddp_digits.py gets for each."""
    ours = ["--backend", "thalweg"]
    found = [("Gloo", ["--backend", "gloo"]), ("Thalweg", ours), (PLANNED, [*ours, "--topology", TOPOLOGY])]
    if bound > 0:
        found.append((f"Thalweg, bound {100 * bound:g} %",
                      [*ours, "--loss-bound", bound, "--line-rate-gbps", SLOWEST_LINK_GBPS]))
    return found


def processor_time():
    """Seconds that this machine's processors were busy, and all of them, since it started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def read_log(path):
    """Returns the complete lines of a log, which may still be written."""
    lines = path.read_text().splitlines(True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def show(progress, name, log):
    """Shows how far a training has come."""
    if not log:
        return
    steps = [entry["step"] for entry in log if "step" in entry]
    accuracies = [entry["accuracy"] for entry in log if "accuracy" in entry]
    last = f"{steps[-1] * 1000:.0f} ms a step" if steps else "starting"
    right = f", {accuracies[-1]:.1%} right" if accuracies else ""
    progress.show(f"{name}, {last}{right}", len(steps) / log[0]["total"])


def used_share(first, last):
    """The share of processor time in use between two looks; 0 if there were none."""
    if first is None or last is None or last[1] == first[1]:
        return 0.0
    return (last[0] - first[0]) / (last[1] - first[1])


def train(bed, name, options, arguments, folder):
    """Runs one training. Returns its log, samples of the network, and how many frames it sent."""
    log = Path(folder) / (name.replace(" ", "-") + ".jsonl")
    before = bed.stats().numbers
    busy = last = None  # from the first step to the last, without loading PyTorch
    watch = Watch(bed.folder)
    process = bed.start_job([sys.executable, ROOT / "examples/ddp_digits.py", *options, "--epochs",
                             arguments.epochs, "--log", log], timeout=arguments.limit,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    output = []
    reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
    reader.start()
    progress = Progress()
    try:
        while process.poll() is None:
            time.sleep(0.2)
            entries = read_log(log)
            show(progress, name, entries)
            if busy is None and any("step" in entry for entry in entries):
                busy = processor_time()
            if busy is not None and sum("step" in entry for entry in entries) < entries[0]["total"]:
                last = processor_time()
        reader.join()
    finally:
        end(process)
        progress.close()
        samples = watch.stop()
    if process.returncode != 0:
        raise TestbedError(f"{name} failed with {process.returncode}:\n{''.join(output)[-4000:]}")
    sent, gone = lost(before, bed.stats().numbers)
    entries = read_log(log)
    return {"name": name, "planned": name == PLANNED, "busy": used_share(busy, last),
            "steps": [e["step"] for e in entries if "step" in e][NOT_COUNTED:],
            "accuracy": [(e["at"], e["accuracy"]) for e in entries if "accuracy" in e],
            "samples": samples, "sent": sent, "lost": gone}


def summary(run):
    steps = run["steps"]
    return {"library": run["name"], "steps": len(steps), "p50_ms": percentile(steps, 0.5) * 1e3,
            "p99_ms": percentile(steps, 0.99) * 1e3, "mean_ms": sum(steps) / len(steps) * 1e3,
            "total_s": sum(steps), "busy": run["busy"], "planned": run["planned"],
            "accuracy": run["accuracy"][-1][1], "frames": run["sent"], "lost": run["lost"]}


def train_all(arguments):
    """Trains with each library over one testbed. Returns the network and the trainings."""
    with Testbed(TOPOLOGY, name=f"demo{os.getpid()}") as bed, \
            tempfile.TemporaryDirectory() as folder:
        print(bed.said, end="", flush=True)
        network = bed.stats().numbers
        for link in LOSSY_LINKS:
            bed.set(link, loss=f"{100 * arguments.loss / len(LOSSY_LINKS):g}%")
        print("== The same training over it: a small network learns digits, four ranks", flush=True)
        runs = []
        for name, options in libraries(arguments.bound):
            runs.append(train(bed, name, options, arguments, folder))
            row = summary(runs[-1])
            print(f"{name}: {row['steps']} steps in {row['total_s']:.1f} s, "
                  f"{row['accuracy']:.1%} right", flush=True)
    return network, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--loss", type=share, default="0.5%",
                        help="share of the packets between racks that is lost, half of it on each link")
    parser.add_argument("--bound", type=share, default="0%",
                        help="one more training, whose gradients may lose this share of their packets")
    parser.add_argument("--output", type=Path, default=ROOT / "demo/report.html")
    parser.add_argument("--limit", type=int, default=200, help="seconds that one training may take")
    parser.add_argument("--json", type=Path, help="also write the table to a file, as JSON")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs: {arguments.epochs}; 1 or more is allowed")
    end_on_signals()
    began = time.monotonic()
    loss = f"{100 * arguments.loss:g} %"
    print(f"== Two racks on this machine, {loss} of all packets between them lost", flush=True)
    try:
        network, runs = train_all(arguments)
    except (TestbedError, OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(str(error)) from error
    rows = [summary(run) for run in runs]
    print(f"\n{'':25} {'step p50':>10} {'mean':>10} {'p99':>10} {'training':>10} {'accuracy':>9} {'packets':>9} "
          f"{'lost':>6} {'processors':>10}")
    for row in rows:
        print(f"{row['library']:25} {row['p50_ms']:7.0f} ms {row['mean_ms']:7.0f} ms {row['p99_ms']:7.0f} ms "
              f"{row['total_s']:8.1f} s {row['accuracy']:9.1%} {row['frames']:9} {row['lost']:6} {row['busy']:10.0%}")
    said, numbers = first_line(rows[0], next(row for row in rows if row["planned"]), loss)
    print(f"\n{said}\nStep times: {numbers}.")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(demo_page.page(network, runs, rows, loss))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"\nThe page: {arguments.output} ({time.monotonic() - began:.0f} s in all)")


if __name__ == "__main__":
    main()
