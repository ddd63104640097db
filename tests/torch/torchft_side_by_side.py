"""Runs torchft's own tests with Gloo and with Thalweg and compares them in build/torchft/report.md.

    python tests/torch/torchft_side_by_side.py [MODULE …]    runs both (`make test-torchft`)

The tests are those of the installed torchft, unchanged (torchft_ours.py replaces the class they
use). The exit code is 1 if a test passes with Gloo and fails with Thalweg; 2 if there is no torchft.
"""
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build/torchft"
MODULES = ("process_group_test", "reconfigure_test", "manager_integ_test", "local_sgd_integ_test",
           "ddp_test", "fsdp_test")
# Tests of Gloo in a process of its own ("baby") do not use the class that is compared.
LEFT_OUT = "baby or Baby"
MOST_SECONDS = 1200  # for one backend
BACKENDS = ("gloo", "thalweg")


def run(backend, modules):
    """Returns {test: (outcome, seconds, why)}."""
    results = OUT / f"{backend}.xml"
    results.unlink(missing_ok=True)
    ours = ["-p", "torchft_ours"] if backend == "thalweg" else []
    paths = f"{ROOT / 'tests/torch'}:{ROOT / 'python'}"
    with open(OUT / f"{backend}.log", "w", encoding="utf-8") as log:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ours, "-k", f"not ({LEFT_OUT})",
             f"--junit-xml={results}", "--pyargs", *(f"torchft.{module}" for module in modules)],
            stdout=log, stderr=subprocess.STDOUT, timeout=MOST_SECONDS, check=False,
            # torchft names tests in the order of a set of strings.
            env=os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}, cwd=OUT)
    return read(results)


def read(results):
    tests = {}
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        # "process_group_test.GlooMultiPgTest.test_…"
        name = f"{case.get('classname')}.{case.get('name')}".rpartition("torchft.")[2]
        outcome, why = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, why = "failed", child.get("message", "")
            elif child.tag == "skipped":
                outcome, why = "skipped", child.get("message", "")
        tests[name] = (outcome, float(case.get("time", 0)), " ".join(why.split())[:160])
    return tests


def report(gloo, ours):
    """Returns the report's text and the names of tests that fail with Thalweg only."""
    lines = ["| backend | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
    for name, tests in zip(BACKENDS, (gloo, ours)):
        counts = [sum(outcome == wanted for outcome, _, _ in tests.values())
                  for wanted in ("passed", "failed", "skipped")]
        seconds = sum(seconds for _, seconds, _ in tests.values())
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {seconds:.0f} |")
    lines += ["", "| test | gloo | thalweg | gloo, s | thalweg, s | why |", "|---|---|---|---|---|---|"]
    missing = ("missing", 0.0, "")
    only_ours = []
    for name in sorted(gloo.keys() | ours.keys()):
        theirs, own = gloo.get(name, missing), ours.get(name, missing)
        if theirs[0] == own[0] == "skipped":
            continue
        if theirs[0] == "passed" and own[0] != "passed":
            only_ours.append(name)
        why = own[2] or theirs[2]
        lines.append(f"| `{name}` | {theirs[0]} | {own[0]} | {theirs[1]:.1f} | {own[1]:.1f} | "
                     f"{why.replace('|', '/')} |")
    return "\n".join(lines) + "\n", only_ours


def main():
    try:
        import parameterized  # noqa: F401  torchft's tests need it
        import torchft  # noqa: F401
    except ImportError as error:
        print(f"test-torchft: {error}; `.venv/bin/python -m pip install torchft-nightly "
              "parameterized` installs what is needed", file=sys.stderr)
        sys.exit(2)
    OUT.mkdir(parents=True, exist_ok=True)
    gloo, ours = (run(backend, sys.argv[1:] or MODULES) for backend in BACKENDS)
    text, only_ours = report(gloo, ours)
    (OUT / "report.md").write_text(text, encoding="utf-8")
    print(text)
    if only_ours:
        print(f"fail with thalweg alone: {', '.join(only_ours)}")
    sys.exit(bool(only_ours))


if __name__ == "__main__":
    main()
