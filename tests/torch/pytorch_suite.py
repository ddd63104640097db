"""Runs PyTorch's own tests of torch.distributed with a given backend: the tests that PyTorch runs with Gloo.

    python tests/torch/pytorch_suite.py --backend thalweg --json results.json [-k PATTERN …]

The tests are torch.testing._internal.distributed.distributed_test of the installed PyTorch, unchanged. They decide by
the name of the backend which of them are for Gloo, and what to do for it. So the module is loaded as for Gloo, and then
given a name that selects our backend but compares equal to Gloo's. Each test runs in processes of its own, forked from
this one; their output goes to --log.
"""
import argparse
import fnmatch
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
RANKS = 3  # enough for all tests, except those with two GPUs per rank
SECONDS_A_TEST = 90


class Name(str):
    """The name of a backend that also compares equal to "gloo"."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other


def load(backend):
    """Returns the class of all tests for a backend."""
    os.environ.update({"BACKEND": "gloo", "WORLD_SIZE": str(RANKS)})
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="thalweg-torch-"))
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    import thalweg  # noqa: F401  registers the backend

    common_distributed.TIMEOUT_DEFAULT = SECONDS_A_TEST
    common_distributed.TIMEOUT_OVERRIDE.clear()
    distributed_test.BACKEND = Name(backend)

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Tests


class Results(unittest.TestResult):
    """The outcome and cause of each test, by name; written to `screen` as tests end."""

    def __init__(self, screen):
        super().__init__()
        self.tests = {}
        self._screen = screen
        self._started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._started = time.monotonic()

    def _note(self, test, outcome, why=""):
        name = test.id().rsplit(".", 1)[-1]
        seconds = time.monotonic() - self._started
        self.tests[name] = {"outcome": outcome, "why": why, "seconds": round(seconds, 2)}
        reason = f": {why[-200:]}" if outcome == "failed" else ""
        print(f"{outcome:8}{seconds:7.1f} s  {name}{reason}", file=self._screen, flush=True)
        print(f"===== {outcome} {name} {why}", flush=True)

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._note(test, "failed", str(error[1]))

    def addError(self, test, error):
        super().addError(test, error)
        self._note(test, "failed", str(error[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default="thalweg")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--log", default=os.devnull, help="where what the tests print goes")
    parser.add_argument("-k", action="append", default=[], metavar="PATTERN", help="only tests with such names")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth test, from the Ith on")
    arguments = parser.parse_args()
    tests = load(arguments.backend)
    index, shards = map(int, arguments.shard.split("/"))
    names = [name for name in unittest.defaultTestLoader.getTestCaseNames(tests)
             if not arguments.k or any(fnmatch.fnmatch(name, pattern) for pattern in arguments.k)]
    screen = os.fdopen(os.dup(1), "w")
    log = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    results = Results(screen)
    unittest.TestSuite(tests(name) for name in names[index::shards]).run(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results.tests, indent=1, sort_keys=True))
    counts = {outcome: sum(test["outcome"] == outcome for test in results.tests.values())
              for outcome in ("passed", "failed", "skipped")}
    print(f"{arguments.backend}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped",
          file=screen, flush=True)
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
