"""The modules in C++: compiled by CMake, for the PyTorch that python/packaging/build_backend.py finds."""
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "python/packaging"))
from build_backend import TESTED, torch_folder, torch_version  # noqa: E402


# python/csrc is thalweg._C, python/csrc_sync thalweg._sync, and so on.
MODULES = ["thalweg._C", *sorted(f"thalweg._{folder.name.removeprefix('csrc_')}"
                                 for folder in (ROOT / "python").glob("csrc_*"))]


class CMakeBuild(build_ext):
    def build_extensions(self):
        """All at once: one target of CMake's makes them."""
        try:
            self.build_by_cmake()
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"thalweg: {error}: the build needs CMake, Ninja and Debian's libraries: run tools/setup "
                             "(docs/pytorch.md)") from error

    def build_by_cmake(self):
        torch = torch_folder()
        if torch is None:
            raise SystemExit(f"thalweg: there is no PyTorch to build for: pip install torch=={TESTED}")
        output = Path(self.get_ext_fullpath(MODULES[0])).resolve().parent
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DTHALWEG_TORCH_ONLY=ON", f"-DTHALWEG_TORCH={torch}", f"-DTHALWEG_PYTHON_OUTPUT={output}",
                        f"-DPython3_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "thalweg_torch", "--parallel",
                        str(os.cpu_count())], check=True)


def dependencies():
    torch = torch_folder()
    return [f"torch=={torch_version(torch) if torch else TESTED}", "numpy>=1.22"]


version = re.search(r'__version__ = "(.*)"', (ROOT / "python/thalweg/__init__.py").read_text()).group(1)
setup(version=version, install_requires=dependencies(), ext_modules=[Extension(name, []) for name in MODULES],
      cmdclass={"build_ext": CMakeBuild})
