"""Builds the Python package: CMake compiles the extension module, setuptools packs the wheel.

    python3 -m build --wheel --no-isolation

The module is for the PyTorch of the Python that runs this. CMAKE_PREFIX_PATH names a libtorch that
CMake does not find by itself; CMAKE_ARGS has further arguments of CMake, e.g. -DREMCAPS_CUDA=ON.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        package = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve().parent
        build = pathlib.Path(self.build_temp).resolve()
        subprocess.check_call(
            ["cmake", "--preset", "release", "-S", ROOT, "-B", build,
             "-DREMCAPS_PYTHON=ON", f"-DPython3_EXECUTABLE={sys.executable}",
             "-DREMCAPS_BUILD_TESTS=OFF", "-DREMCAPS_BUILD_BENCH=OFF", "-DREMCAPS_BUILD_EXAMPLES=OFF",
             *shlex.split(os.environ.get("CMAKE_ARGS", ""))], cwd=ROOT)
        subprocess.check_call(["cmake", "--build", build, "--parallel", str(os.cpu_count()),
                               "--target", "_remcaps"])
        subprocess.check_call(["cmake", "--install", build, "--component", "python", "--strip",
                               "--prefix", package])


setup(
    version=re.search(r"VERSION ([\d.]+) LANG", (ROOT / "CMakeLists.txt").read_text()).group(1),
    ext_modules=[Extension("remcaps._remcaps", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
