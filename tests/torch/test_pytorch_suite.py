"""A few of PyTorch's own tests. `make test-torch` runs all of them."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOME = ["test_accumulate_gradients_no_sync", "test_all_gather_coalesced_with_empty", "test_all_reduce_sum_async",
        "test_batch_isend_irecv_gloo_tags", "test_gather_checks", "test_get_future", "test_isend_torch_profiler",
        "test_reduce_full_group_product", "test_scatter_object_list", "test_send_recv_any_source",
        "test_sparse_all_reduce_sum"]


def test_some_of_pytorchs_tests(tmp_path):
    results = tmp_path / "results.json"
    patterns = [word for name in SOME for word in ("-k", name)]
    run = subprocess.run([sys.executable, str(HERE / "pytorch_suite.py"), "--json", str(results), *patterns],
                         capture_output=True, text=True, timeout=300, check=False)
    tests = json.loads(results.read_text())
    assert run.returncode == 0, run.stdout
    assert {name: test["outcome"] for name, test in tests.items()} == dict.fromkeys(SOME, "passed"), run.stdout


def test_a_failure_is_one(tmp_path):
    """The tests fail with a backend that does not exist, so they do use the named backend."""
    run = subprocess.run([sys.executable, str(HERE / "pytorch_suite.py"), "--backend", "nowhere", "-k",
                          "test_barrier_group"], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 1 and "1 failed" in run.stdout, run.stdout


@pytest.mark.parametrize(("own", "reason", "unexpected"), [
    ("passed", "", []), ("skipped", "", []), ("failed", "", ["test_a"]), ("failed", "known", [])])
def test_the_report_tells_what_fails_with_us_alone(monkeypatch, own, reason, unexpected):
    import side_by_side
    monkeypatch.setattr(side_by_side, "EXPECTED", {"test_a": reason} if reason else {})
    text, found = side_by_side.report({"test_a": {"outcome": "passed", "why": ""}},
                                      {"test_a": {"outcome": own, "why": "x"}})
    assert found == unexpected
    assert ("test_a" in text) == (own != "passed") and "| gloo | 1 | 0 | 0 |" in text
