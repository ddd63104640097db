"""Builds the Python package (PEP 517) with setuptools, for the PyTorch that is installed.

A native module only fits the PyTorch that it was compiled for. pip builds in an isolated
environment, which hides the packages of the environment that it installs to, so this backend looks
for torch in their folders. If there is none, the build uses version TESTED.
"""
import os
import re
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401,F403

TESTED = "2.13.0"
OLDEST = (2, 6)


def torch_folder():
    """Returns the folder of the torch package to build for, or None if there is none."""
    given = os.environ.get("THALWEG_TORCH")
    places = [Path(given)] if given else [Path(place) / "torch" for place in _places()]
    found = next((place for place in places if (place / "version.py").is_file()), None)
    if given and found is None:
        raise SystemExit(f"thalweg: THALWEG_TORCH: {given}; the folder of a torch package, with "
                         "its version.py, is allowed")
    return found


def _places():
    import sys
    paths = sysconfig.get_paths()
    return [paths["platlib"], paths["purelib"], *sys.path]


def torch_version(folder):
    """Returns the version as "2.13.0", without the suffix that names devices, such as "+cpu"."""
    text = (folder / "version.py").read_text()
    version = re.search(r"__version__ = '([0-9.]+)", text).group(1)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise SystemExit(f"thalweg: PyTorch {version} at {folder}; {OLDEST[0]}.{OLDEST[1]} or "
                         "newer is needed")
    return version


def is_old_abi(folder):
    """Whether this PyTorch has C++ strings of before GCC 5, as PyPI's 2.6 has."""
    config = folder / "share/cmake/Torch/TorchConfig.cmake"
    return config.is_file() and "_GLIBCXX_USE_CXX11_ABI=0" in config.read_text()


def _torch_needed():
    return [] if torch_folder() else [f"torch=={TESTED}"]


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _torch_needed()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _torch_needed()
