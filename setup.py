"""Builds the native modules with CMake, for the PyTorch that build_backend.py finds.

THALWEG_STANDALONE names a folder with the program and the modules, linked so that they need no Debian package: then they
are packed as they are, with the data of the program (tools/wheel). THALWEG_TORCHES names the PyTorch versions that there is a
module for, such as "2.9 2.13".
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "python/packaging"))
from build_backend import TESTED, is_old_abi, torch_folder, torch_version  # noqa: E402

NCCL_PLUGIN = "libnccl-net-thalweg.so"  # thalweg.nccl finds it beside itself
STANDALONE = os.environ.get("THALWEG_STANDALONE")
TORCHES = [tuple(map(int, version.split(".")))
           for version in os.environ.get("THALWEG_TORCHES", "").split()] if STANDALONE else []

# python/csrc becomes thalweg._C; in a wheel that stands alone it becomes thalweg._C_torch2_13 and so on. python/csrc_sync
# becomes thalweg._sync.
BACKENDS = [f"thalweg._C_torch{major}_{minor}" for major, minor in TORCHES] or ["thalweg._C"]
MODULES = [*BACKENDS, *sorted(f"thalweg._{folder.name.removeprefix('csrc_')}"
                              for folder in (ROOT / "python").glob("csrc_*"))]


class CMakeBuild(build_ext):
    def build_extensions(self):
        """Builds all modules at once, because one CMake target makes them."""
        if STANDALONE:
            self.copy_modules()
            return
        try:
            self.build_by_cmake()
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"thalweg: {error}: the build needs CMake, Ninja and Debian's "
                             "libraries: run tools/setup (docs/pytorch.md)") from error

    def copy_modules(self):
        for module in MODULES:
            target = Path(self.get_ext_fullpath(module))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(STANDALONE) / target.name, target)
        shutil.copy(Path(STANDALONE) / NCCL_PLUGIN, target.with_name(NCCL_PLUGIN))

    def build_by_cmake(self):
        torch = torch_folder()
        if torch is None:
            raise SystemExit("thalweg: there is no PyTorch to build for: "
                             f"pip install torch=={TESTED}")
        if is_old_abi(torch):
            raise SystemExit(f"thalweg: PyTorch {torch_version(torch)} at {torch} has the old C++ "
                             "ABI, which Debian's libraries have not: install PyPI's, 2.7 or newer, "
                             "or a wheel that `make wheel TORCH=2.6.0` builds")
        output = Path(self.get_ext_fullpath(MODULES[0])).resolve().parent
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Release", "-DTHALWEG_TORCH_ONLY=ON",
                        f"-DTHALWEG_TORCH={torch}", f"-DTHALWEG_PYTHON_OUTPUT={output}",
                        f"-DPython3_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "thalweg_torch", "--parallel",
                        str(os.cpu_count())], check=True)


def dependencies():
    """The modules fit every patch of the PyTorch versions that they were built for."""
    torch = torch_folder()
    version = torch_version(torch) if torch else TESTED
    built = sorted(TORCHES) or [tuple(map(int, version.split(".")[:2]))]
    (major, first), (_, last) = built[0], built[-1]
    if first == last:
        return [f"torch=={major}.{first}.*", "numpy>=1.22"]
    without = "".join(f",!={major}.{minor}.*" for minor in range(first, last) if (major, minor) not in built)
    return [f"torch>={major}.{first},<{major}.{last + 1}{without}", "numpy>=1.22"]


def standalone_files():
    """The program and its data, by the folder of the environment that they go to."""
    if not STANDALONE:
        return []
    share = ROOT / "share"
    folders = sorted({path.parent for path in share.rglob("*") if path.is_file()})
    return [("bin", [str(Path(STANDALONE) / "thalweg")]),
            *((str(folder.relative_to(ROOT)),
               sorted(str(path.relative_to(ROOT)) for path in folder.iterdir() if path.is_file()))
              for folder in folders)]


package = (ROOT / "python/thalweg/__init__.py").read_text()
version = re.search(r'__version__ = "(.*)"', package).group(1)
setup(version=version, install_requires=dependencies(), data_files=standalone_files(),
      ext_modules=[Extension(name, []) for name in MODULES], cmdclass={"build_ext": CMakeBuild})
