"""DS-Sync on a network that changes under it: eight workers, each in a network namespace of its own (needs root).

    PYTHONPATH=python python examples/dssync_contention.py --plot contention.svg

Two racks of four workers train examples/dssync_digits.py by the backend "thalweg" over links of --rate. At the window
of --slow-at the link of one worker is made --factor times slower (tbf), at --restore-at it is as before. What DS-Sync
makes of it is printed as it happens and drawn. Ends with 0 if the slow worker was found, and acquitted afterwards.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from thalweg.lab.figures.draw import draw
from thalweg.lab.namespaces import address, hosts, missing, own_world, shape

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 8
RACKS = "4,4"
PORT = 29400
POLL_SECONDS = 0.1
SHAPING = {"burst": "16kb", "latency": "500ms"}


def start(ends, worker, words):
    """The worker's process, in its namespace. Of the first one the words can be read."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "RANK": str(worker),
                   "WORLD_SIZE": str(WORKERS), "MASTER_ADDR": address(0), "MASTER_PORT": str(PORT),
                   "TORCH_CPP_LOG_LEVEL": "ERROR"}  # of PyTorch's: addresses without names
    return subprocess.Popen(["ip", "netns", "exec", ends[worker], sys.executable, *words], env=environment,
                            stderr=subprocess.STDOUT if worker == 0 else None,
                            stdout=subprocess.PIPE if worker == 0 else None, text=True)


def windows_of(record):
    if not record.exists():
        return []
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def watch(arguments, ends, ranks, record):
    """Slows and restores the link when the windows have come. Returns at which iterations that was."""
    events = [(arguments.slow_at, arguments.rate / arguments.factor, "slowed"),
              (arguments.restore_at, arguments.rate, "restored")]
    done = []
    while any(rank.poll() is None for rank in ranks):
        windows = windows_of(record)
        if events and len(windows) >= events[0][0]:
            _, megabits, what = events.pop(0)
            shape(ends, arguments.slow, megabits / 1000, **SHAPING)
            iteration = len(windows) * arguments.window
            done.append((iteration, what))
            print(f"about iteration {iteration}: worker {arguments.slow}'s link is {what}: {megabits:g} Mb/s", flush=True)
        if any(rank.poll() not in (None, 0) for rank in ranks):
            raise RuntimeError("a worker failed; its words are above")
        time.sleep(POLL_SECONDS)
    return done


def figure_of(arguments, windows, events, changes):
    """The time of the slow worker's group, and of the slowest of the groups without it, at every iteration."""
    its, others, sizes = [], [], []
    for window in windows:
        for place in range(arguments.window):
            groups = window["period"][(window["first"] + place) % len(window["period"])]
            # A group's time is the shortest that a member saw: the others waited for the last to begin.
            times = {tuple(group): 1000 * min(window["seconds"][worker][place] for worker in group) for group in groups}
            own = next(group for group in times if arguments.slow in group)
            sizes.append(len(own))
            its.append(times.pop(own))
            others.append(max(times.values(), default=None))
    x = list(range(len(its)))
    marks = [{"x": at, "label": f"link {what}"} for at, what in events]
    marks += [{"x": at, "label": "schedule changed"} for at in changes]
    return {"title": f"DS-Sync, worker {arguments.slow}'s link {arguments.factor:g} times slower", "panels": [
        {"kind": "lines", "x_label": "iteration", "y_label": "average in a group (ms)", "marks": marks, "series": [
            {"name": f"worker {arguments.slow}'s group", "x": x, "y": its},
            {"name": "slowest other group", "x": x, "y": others}]},
        {"kind": "steps", "x_label": "iteration", "y_label": "workers", "marks": marks, "series": [
            {"name": f"in worker {arguments.slow}'s group", "x": x, "y": sizes}]}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--slow", type=int, default=5, help="the worker whose link is slowed, 0 to 7")
    parser.add_argument("--rate", type=float, default=100.0, help="of all links, Mb/s")
    parser.add_argument("--factor", type=float, default=5.0, help="how many times slower")
    parser.add_argument("--window", type=int, default=16, help="iterations between looks at the network")
    parser.add_argument("--slow-at", type=int, default=4, help="windows before the link is slowed")
    parser.add_argument("--restore-at", type=int, default=9, help="windows before it is restored")
    parser.add_argument("--epochs", type=int, default=11, help="of 22 iterations each")
    parser.add_argument("--plot", default="dssync_contention.svg", help="where the picture goes (.svg, .png)")
    arguments = parser.parse_args()
    if not 0 <= arguments.slow < WORKERS:
        parser.error(f"--slow: {arguments.slow}; 0 to {WORKERS - 1} are allowed")
    if missing():
        parser.error(f"cannot make hosts: {missing()}")
    own_world()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        record, log = Path(folder) / "record", Path(folder) / "log"
        ends = stack.enter_context(hosts(WORKERS, arguments.rate / 1000, **SHAPING))
        words = [str(ROOT / "examples/dssync_digits.py"), "--backend", "thalweg", "--racks", RACKS, "--only", "ds-sync",
                 "--window", str(arguments.window), "--epochs", str(arguments.epochs), "--record", str(record)]
        ranks = []
        stack.callback(lambda: [rank.kill() for rank in ranks])
        ranks += [start(ends, worker, words) for worker in range(WORKERS)]
        tee = subprocess.Popen(["tee", str(log)], stdin=ranks[0].stdout)
        events = watch(arguments, ends, ranks, record)
        tee.wait()
        found = re.findall(r"iteration (\d+): slow racks (\[.*?\]), slow workers (\[.*?\])", log.read_text(encoding="utf-8"))
        changes = [(int(at), json.loads(racks), json.loads(workers)) for at, racks, workers in found]
        draw(figure_of(arguments, windows_of(record), events, [at for at, _, _ in changes]), arguments.plot)
    print(f"plot: {arguments.plot}")
    noticed = [at for at, _, workers in changes if arguments.slow in workers]
    acquitted = [at for at, _, workers in changes if noticed and at > noticed[0] and arguments.slow not in workers]
    print(f"the slow link was noticed at iteration {noticed[0] if noticed else 'never'}, "
          f"that it is so no longer at iteration {acquitted[0] if acquitted else 'never'}")
    return 0 if noticed and acquitted else 1


if __name__ == "__main__":
    sys.exit(main())
