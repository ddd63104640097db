#!/usr/bin/env python3
"""Gets what a native module needs of PyTorch versions: headers, three libraries, version.py.

    torches.py OUTPUT [VERSION … | all]

Prints one line for each version: its number as "2.13", its C++ ABI ("new", or "old" as PyPI's 2.6
has it), and the folder of its torch package. Without a version, the PyTorch of this Python is the
only one. A version that is neither that nor in OUTPUT comes from PyPI; of its wheel (about 0.8 GB)
two thirds of a GB stay.
"""
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from build_backend import OLDEST, is_old_abi, torch_version

# The newest patch of every version that PyPI has. A module fits all patches of its version.
ALL = ("2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1",
       "2.15.0")
NEEDED = re.compile(r"torch/(include/.*|lib/lib(c10|torch_cpu|torch_python)\.so|version\.py|"
                    r"share/cmake/Torch/.*)")


def main(output, *asked):
    here = Path(sysconfig.get_path("purelib")) / "torch"
    own = torch_version(here) if (here / "version.py").is_file() else None
    if not asked and own is None:
        raise SystemExit("torches.py: this Python has no PyTorch: name the versions to build for")
    versions = ALL if asked == ("all",) else asked or (own,)
    check(versions)
    for version in versions:
        folder = here if version == own else fetch(version, Path(output) / version)
        print(short(version), "old" if is_old_abi(folder) else "new", folder)


def short(version):
    return ".".join(version.split(".")[:2])


def check(versions):
    for version in versions:
        if not re.fullmatch(r"2\.\d+\.\d+", version) or int(version.split(".")[1]) < OLDEST[1]:
            raise SystemExit(f"TORCH: '{version}'; 'all' or versions such as {ALL[-1]}, from "
                             f"{ALL[0]} on, are allowed")
    names = [short(version) for version in versions]
    for name in names:
        if names.count(name) > 1:
            raise SystemExit(f"TORCH: {name} twice; a module fits all patches of a version")


def fetch(version, folder):
    """Returns the torch folder under `folder`, which pip fills if it is not there."""
    if (folder / "torch/version.py").is_file():
        return folder / "torch"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        print(f"getting PyTorch {version}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--no-cache-dir", "--only-binary", ":all:", "--disable-pip-version-check",
                        "--dest", place, f"torch=={version}"], check=True, stdout=sys.stderr)
        with zipfile.ZipFile(next(Path(place).glob("torch-*.whl"))) as wheel:
            names = [name for name in wheel.namelist() if NEEDED.fullmatch(name)]
            # version.py comes last: it says that all others are there.
            for name in sorted(names, key=lambda name: name == "torch/version.py"):
                wheel.extract(name, folder)
    return folder / "torch"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"torches.py: pip has no such PyTorch: {error}") from error
