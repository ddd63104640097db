import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="tests/validation: all seeds, some minutes")
    parser.addoption("--program", default=str(ROOT / "build/release/thalweg"),
                     help="tests/validation: the thalweg to validate")


@pytest.fixture(scope="session")
def full(request):
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def program(request):
    return Path(request.config.getoption("--program")).resolve()


@pytest.fixture(scope="session")
def peer():
    path = ROOT / "build/ns3/ns3_peer"
    assert path.exists(), f"{path} is not there; `make ns3` builds it"
    return path
