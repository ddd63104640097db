"""A few of PyTorch's own tests; all of them are `make test-torch`."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOME = ["test_all_gather_full_group", "test_all_reduce_multigpu_complex", "test_all_reduce_sum_async",
        "test_all_reduce_sparse*", "test_all_to_all_single_unequal_split", "test_barrier_group",
        "test_ddp_comm_hook_logging", "test_gather_object", "test_isend_autograd_profiler", "test_new_subgroups",
        "test_reduce_scatter_tensor*", "test_send_recv_any_source", "test_undefined_grad_parity_unused_parameters"]


def test_some_of_pytorchs_tests(tmp_path):
    results = tmp_path / "results.json"
    patterns = [word for name in SOME for word in ("-k", name)]
    run = subprocess.run([sys.executable, str(HERE / "pytorch_suite.py"), "--json", str(results), *patterns],
                         capture_output=True, text=True, timeout=300, check=False)
    tests = json.loads(results.read_text())
    assert run.returncode == 0, run.stdout
    assert sum(test["outcome"] == "passed" for test in tests.values()) >= 8, run.stdout


def test_a_failure_is_one(tmp_path):
    """With a backend that does not exist, the tests fail: they do use the one that is named."""
    run = subprocess.run([sys.executable, str(HERE / "pytorch_suite.py"), "--backend", "nowhere", "-k",
                          "test_barrier_group"], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 1 and "1 failed" in run.stdout, run.stdout


@pytest.mark.parametrize(("own", "reason", "unexpected"), [
    ("passed", "", []), ("skipped", "", []), ("failed", "", ["test_a"]), ("failed", "known", [])])
def test_the_report_tells_what_fails_with_us_alone(monkeypatch, own, reason, unexpected):
    import compare
    monkeypatch.setattr(compare, "EXPECTED", {"test_a": reason} if reason else {})
    text, found = compare.report({"test_a": {"outcome": "passed", "why": ""}}, {"test_a": {"outcome": own, "why": "x"}})
    assert found == unexpected
    assert ("test_a" in text) == (own != "passed") and "| gloo | 1 | 0 | 0 |" in text
