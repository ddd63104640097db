"""torchft's process group over Thalweg: the tests of torchft_cases.py and others, each file in a process of its own.

Other tests fork their ranks from the process that runs them, and a process that has used torchft has threads that a child
would miss.
"""
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="torchft is not installed")
@pytest.mark.parametrize("cases", ["torchft_cases.py", "torchft_state_cases.py", "torchft_heal_cases.py"])
def test_cases(cases):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
                           Path(__file__).with_name(cases)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
