#!/usr/bin/env python3
"""Seven senders send to one receiver at once on a testbed: DLCP with and without receiver grants, beside the kernel's TCP.

Needs root (network namespaces) and build/release/{thalweg,examples/incast}. The modes take turns, so that what else the
machine does meets all of them. Times are from when the receiver lets the senders go to when a sender's tensor was
complete; `slowest` is that of the last sender of a round. The limit is the time in which the receiver's link carries all
packets with their headers as IP counts them, which is what the testbed's rates count.

    bench/incast.py [--rate 100] [--buffer 512KiB] [--floats 65536] [--rounds 20] [--turns 3] [--bound 0.0] [--loss 0]
"""
import argparse
import json
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THALWEG = ROOT / "build/release/thalweg"
INCAST = ROOT / "build/release/examples/incast"
NAME = "incast"
PAYLOAD = {"dlcp": 1400, "grants": 1400, "tcp": 1448}  # bytes of a tensor in a packet
PACKET = {"dlcp": 1468, "grants": 1468, "tcp": 1500}   # with the headers of IP and above


def testbed(*words):
    return subprocess.run([THALWEG, "testbed", *map(str, words)], check=True, capture_output=True, text=True).stdout


def dropped():
    return json.loads(testbed("stats", "--name", NAME, "--json"))["frames"]["dropped_full"]


def start(host, *words):
    return subprocess.Popen([THALWEG, "testbed", "exec", "--name", NAME, str(host), "--", INCAST, *map(str, words)],
                            stdout=subprocess.PIPE, text=True)


def turn(mode, arguments, port):
    """One run of all rounds. Returns the times of each round and the frames that a full buffer dropped."""
    options = ["--over", mode, "--floats", arguments.floats, "--rounds", arguments.rounds, "--line-rate",
               arguments.rate / 1000, "--bound", arguments.bound if mode != "tcp" else 0]
    before = dropped()
    address = f"10.77.0.1:{port}"
    receiver = start(0, "recv", address, "--senders", arguments.senders, *options)
    senders = [start(host, "send", address, *options) for host in range(1, arguments.senders + 1)]
    try:
        lines = receiver.communicate(timeout=600)[0].splitlines()
        codes = [process.wait(timeout=60) for process in [receiver, *senders]]
    finally:
        for process in [receiver, *senders]:
            process.kill()
    if any(codes):
        raise SystemExit(f"{mode}: exit codes {codes}")
    # The first round finds cold sockets and windows.
    times = [[float(word) for word in line.split()] for line in lines[1:-1]]
    return times, dropped() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100, help="of every link, in Mb/s")
    parser.add_argument("--buffer", default="512KiB", help="of every port of the switch")
    parser.add_argument("--senders", type=int, default=7)
    parser.add_argument("--floats", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bound", type=float, default=0)
    parser.add_argument("--loss", default="", help="at random on every link, as in 0.1%%")
    parser.add_argument("--modes", default="grants,dlcp,tcp")
    arguments = parser.parse_args()
    testbed("up", f"single-switch:hosts={arguments.senders + 1},host={arguments.rate:g}M,buffer={arguments.buffer}",
            "--name", NAME)
    runs = {mode: [] for mode in arguments.modes.split(",")}
    try:
        if arguments.loss:
            testbed("set", "--name", NAME, "link", "all", f"loss={arguments.loss}")
        port = 21000
        for _ in range(arguments.turns):
            for mode in runs:
                runs[mode].append(turn(mode, arguments, port))
                port += 2
    finally:
        testbed("down", "--name", NAME)
    print(f"{arguments.senders} senders, {arguments.floats * 4} B each, {arguments.rate:g} Mb/s, buffer {arguments.buffer}, "
          f"bound {arguments.bound}, loss {arguments.loss or 0}")
    print("mode    turn  limit_ms  mean_ms  slowest_p50  slowest_max  slowest_p50/limit  dropped")
    for mode, turns in runs.items():
        packets = -(-arguments.floats * 4 // PAYLOAD[mode])
        limit = arguments.senders * packets * PACKET[mode] * 8 / (arguments.rate * 1000)
        for number, (times, lost) in enumerate(turns):
            slowest = [max(round_) for round_ in times]
            mean = statistics.mean(time for round_ in times for time in round_)
            print(f"{mode:7} {number:4}  {limit:8.1f}  {mean:7.1f}  {statistics.median(slowest):11.1f}  {max(slowest):11.1f}"
                  f"  {statistics.median(slowest) / limit:17.3f}  {lost:7}")


if __name__ == "__main__":
    main()
