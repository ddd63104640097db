import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "style"))  # licenses.py


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """A prefix into which the release build was installed."""
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", ROOT / "build/release", "--prefix", folder], check=True, capture_output=True, timeout=120)
    return folder
