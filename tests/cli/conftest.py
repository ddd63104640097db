import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def namespaces():
    """Skips tests that make network namespaces where that is not possible."""
    if os.geteuid() != 0 or os.environ.get("THALWEG_WITHOUT_ROOT"):
        pytest.skip("needs root to make network namespaces")
    if missing := [tool for tool in ("ip", "tc", "nft", "ethtool") if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")


@pytest.fixture
def thalweg():
    """Runs the program in the repository's root; .json() parses its output."""

    class Done:
        def __init__(self, process):
            self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

        def json(self):
            assert self.code == 0, self.err
            return json.loads(self.out)

    def run(*arguments, timeout=120):
        return Done(subprocess.run([ROOT / "build/release/thalweg", *map(str, arguments)], cwd=ROOT,
                                   capture_output=True, text=True, timeout=timeout))

    return run
