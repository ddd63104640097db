"""Runs PyTorch's own tests with Gloo and with Thalweg and compares them in build/torch/report.md.

    python tests/torch/side_by_side.py        runs both (`make test-torch`)

The exit code is 1 if a test passes with Gloo, fails with Thalweg, and is not in EXPECTED.
"""
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build/torch"
OUTCOMES = ("passed", "failed", "skipped")

MONITORED = ("torch.distributed.monitored_barrier refuses every backend but Gloo by its name; the call of the process "
             "group, `dist.group.WORLD.monitored_barrier(…)`, works and is tested in test_failures.py")
CUSTOM = "PyTorch logs the name of every third-party backend as 'custom'"
EXPECTED = {
    "test_ddp_logging_data_cpu": CUSTOM,
    "test_monitored_barrier_gloo": MONITORED,
    "test_monitored_barrier_gloo_subgroup": MONITORED,
    "test_monitored_barrier_failure_order": MONITORED,
    "test_monitored_barrier_wait_all_ranks": MONITORED,
}


def run(backend):
    results = OUT / f"{backend}.json"
    results.unlink(missing_ok=True)
    subprocess.run([sys.executable, str(ROOT / "tests/torch/pytorch_suite.py"), "--backend", backend, "--json",
                    str(results), "--log", str(OUT / f"{backend}.log")], check=False)
    return json.loads(results.read_text())


def report(gloo, ours):
    """Returns the report's text and the names of tests that unexpectedly fail with Thalweg only."""
    lines = ["| backend | passed | failed | skipped |", "|---|---|---|---|"]
    for name, tests in (("gloo", gloo), ("thalweg", ours)):
        counts = [sum(test["outcome"] == outcome for test in tests.values()) for outcome in OUTCOMES]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    lines += ["", "| test | gloo | thalweg | why |", "|---|---|---|---|"]
    unexpected = []
    for name in sorted(gloo.keys() | ours.keys()):
        theirs, own = gloo[name]["outcome"], ours[name]["outcome"]
        if theirs == own and own != "failed":
            continue
        reason = EXPECTED.get(name, "")
        if own == "failed" and theirs == "passed" and not reason:
            unexpected.append(name)
            reason = f"see build/torch/thalweg.log: {ours[name]['why'].strip().splitlines()[-1]}"
        lines.append(f"| `{name}` | {theirs} | {own} | {reason} |")
    return "\n".join(lines) + "\n", unexpected


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    gloo, ours = run("gloo"), run("thalweg")
    text, unexpected = report(gloo, ours)
    (OUT / "report.md").write_text(text)
    print(text)
    if unexpected:
        print(f"fail with thalweg alone: {', '.join(unexpected)}")
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
