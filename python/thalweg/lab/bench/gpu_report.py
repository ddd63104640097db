"""What `thalweg bench gpu` shows: rows of numbers, and tables of rows."""
import statistics

from thalweg.lab.bench.gpu_allreduce_rank import ALONE, COPIES, HOST
from thalweg.lab.testbed import percentile

PLUGIN, COLLNET = "nccl+plugin", "nccl+collnet"
PEERS = ("nccl", "gloo", PLUGIN, COLLNET)
NAMES = {"nccl": "NCCL", "gloo": "Gloo", PLUGIN: "plugin", COLLNET: "CollNet"}
PHASES = ("enqueue", "arrive", "start", "operation", "back")
KIB, MIB = 1 << 10, 1 << 20


def name_of(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def numbers_of(result, size):
    """Returns what is shown of one library's times with tensors of `size` bytes."""
    p50 = statistics.median(result["times_s"])
    return {"p50_us": round(1e6 * p50, 1),
            "p99_us": round(1e6 * percentile(result["times_s"], 0.99), 1),
            "mean_us": round(1e6 * statistics.fmean(result["times_s"]), 1),
            "gb_per_s": round(size / p50 / 1e9, 3), "samples": len(result["times_s"]),
            "calls_per_sample": result["calls"]}


def row_of(ranks, size, results):
    """Returns the row of one size: every library's numbers, and peer / Thalweg by p50 and p99."""
    row = {"ranks": ranks, "bytes": size}
    for name, result in results.items():
        row[name] = numbers_of(result, size)
    for part in ("p50", "p99"):
        row[f"ratio_{part}"] = {
            peer: round(row[peer][f"{part}_us"] / row["thalweg"][f"{part}_us"], 2)
            for peer in PEERS if peer in results}
        if "nccl" in results:
            row[f"nccl_ratio_{part}"] = {
                peer: round(row["nccl"][f"{part}_us"] / row[peer][f"{part}_us"], 2)
                for peer in (PLUGIN, COLLNET) if peer in results}
    phases = results["thalweg"].get("phases", {})
    if phases.get("parts"):
        calls = phases["calls"]
        row["phases_us"] = {name: round(phases[f"{name}_ns"] / calls / 1e3, 2) for name in PHASES}
        row["parts_per_call"] = round(phases["parts"] / calls, 2)
    return row


def row_of_steps(ranks, model, steps):
    """Returns the row of a model's training steps: milliseconds, and peer / Thalweg."""
    row = {"ranks": ranks, "model": model}
    for name, result in steps.items():
        times = result["times_s"]
        row[name] = {"p50_ms": round(1e3 * statistics.median(times), 2),
                     "p99_ms": round(1e3 * percentile(times, 0.99), 2),
                     "mean_ms": round(1e3 * statistics.fmean(times), 2), "samples": len(times)}
    row["ratio_p50"] = {peer: round(row[peer]["p50_ms"] / row["thalweg"]["p50_ms"], 2)
                        for peer in PEERS if peer in steps}
    return row


def step_lines(row):
    """Returns a line for the steps with each library."""
    lines = [f"steps of {row['model']}, {row['ranks']} ranks, ms:"]
    for name in (ALONE, "thalweg", *PEERS):
        if name in row:
            ratio = row["ratio_p50"].get(name)
            lines.append(f"{name:>14}{row[name]['p50_ms']:10.2f}{row[name]['p99_ms']:10.2f}"
                         + (f"{ratio:7.2f} of Thalweg's median" if ratio else ""))
    return lines


def table(rows):
    """Returns the lines of the table for one number of ranks."""
    peers = list(rows[0]["ratio_p50"])
    head = f"{'size':>8}{'Thalweg':>10}{'p99':>10}{'GB/s':>8}{'host':>10}{'copies':>9}"
    for peer in peers:
        head += f"{NAMES[peer]:>10}{'p99':>10}{'GB/s':>8}{'ratio':>7}{'of p99':>8}"
    lines = [head]
    for row in rows:
        ours = row["thalweg"]
        line = (f"{name_of(row['bytes']):>8}{ours['p50_us']:10.1f}{ours['p99_us']:10.1f}"
                f"{ours['gb_per_s']:8.2f}{row[HOST]['p50_us']:10.1f}{row[COPIES]['p50_us']:9.1f}")
        for peer in peers:
            theirs = row[peer]
            line += (f"{theirs['p50_us']:10.1f}{theirs['p99_us']:10.1f}{theirs['gb_per_s']:8.2f}"
                     f"{row['ratio_p50'][peer]:7.2f}{row['ratio_p99'][peer]:8.2f}")
        lines.append(line)
    return lines


def plugin_lines(rows):
    """Returns how NCCL over its own sockets compares with NCCL over our plugins, one line for each."""
    lines = []
    for peer in (PLUGIN, COLLNET):
        some = [row for row in rows if peer in row.get("nccl_ratio_p50", {})]
        if some:
            lines.append(f"NCCL / NCCL with the {NAMES[peer]} (of p99): " + ", ".join(
                f"{name_of(row['bytes'])} {row['nccl_ratio_p50'][peer]:.2f} ({row['nccl_ratio_p99'][peer]:.2f})"
                for row in some))
    return lines


def phase_lines(rows):
    """Returns where the time of Thalweg's calls goes, one line for each size."""
    rows = [row for row in rows if "phases_us" in row]
    if not rows:
        return []
    lines = ["where a call's time goes, µs (docs/bench-gpu.md):",
             f"{'size':>8}" + "".join(f"{name:>11}" for name in (*PHASES, "elsewhere"))]
    for row in rows:
        parts = [row["phases_us"][name] for name in PHASES]
        # Parts of one call overlap, so their sum says nothing about the rest.
        rest = f"{row['thalweg']['p50_us'] - sum(parts):11.1f}" if row["parts_per_call"] < 2 else ""
        lines.append(f"{name_of(row['bytes']):>8}" + "".join(f"{us:11.1f}" for us in parts) + rest)
    return lines
