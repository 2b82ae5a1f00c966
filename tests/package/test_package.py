#!/usr/bin/env python3
"""Installs the build and uses the installed tree as a stranger would.

The program is the first C++ block of README.md. It is built against the shared library through CMake and through
pkg-config, and against the archive through CMake and through pkg-config, and must run each time. The tree is moved
after its installation, so nothing in it may name the place where it was. The compilation of the program may take 4 s;
ARETE_SLOW_MACHINE multiplies that on machines known to be slower.
"""

import argparse
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile

# Of the README's program, on a machine that needs so many seconds for the other one.
COMPILE_LIMIT_S, OTHER_S = 4.0, 1.65
# The standard library's headers, of which most programs have these.
OTHER_PROGRAM = """
#include <algorithm>
#include <complex>
#include <functional>
#include <map>
#include <ranges>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
int main() {
  std::map<std::string, std::vector<std::complex<double>>> m;
  std::unordered_map<int, std::variant<int, std::string>> u{{1, "a"}};
  std::function<void()> f = [&] { m["a"].push_back(std::complex<double>(double(u.size()))); };
  f();
  return int(std::ranges::count_if(m, [](auto& e) { return e.second.empty(); }));
}
"""
# The Config modules of installed packages, and what they are asked for.
CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(Arete {version} CONFIG REQUIRED {components})
add_executable(user user.cpp)
target_link_libraries(user PRIVATE {target})
get_target_property(interface Arete::arete INTERFACE_LINK_LIBRARIES)
message(STATUS "link interface of Arete::arete: ${{interface}}")
"""


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def processor_seconds():
    """What finished programs have computed: their time on the clock if nothing else runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, cwd=None, timeout=300, **environment):
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        timeout=timeout,
        env=dict(os.environ, CCACHE_DISABLE="1", **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        fail(f"{shlex.join(str(word) for word in command)} ended with {result.returncode}:\n{result.stdout}")
    return result.stdout


def readme_program(readme):
    if not readme.is_file():
        fail(f"{readme} does not exist; its first ```cpp block is the program that this test builds")
    block = re.search(r"^```cpp\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE)
    if not block:
        fail(f"{readme} has no ```cpp block; the first one is the program that this test builds")
    return block.group(1)


class Package:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        first = folder / "installed-here"
        run([arguments.cmake, "--install", arguments.build, "--prefix", first])
        self.prefix = folder / "moved-there"
        first.rename(self.prefix)
        self.libdir = next(self.prefix.rglob("libarete.so")).parent
        self.source = folder / "user.cpp"
        self.source.write_text(readme_program(arguments.readme))
        self.version = next(self.libdir.rglob("arete.pc")).read_text().split("Version: ")[1].split()[0]

    def check_nothing_names_the_first_place(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in {".cmake", ".pc", ".h"} and path.is_file():
                text = path.read_text(errors="replace")
                for place in ("installed-here", str(self.arguments.build)):
                    if place in text:
                        fail(f"{path} contains {place}")
        if not (self.prefix / "include/arete/arete.h").is_file():
            fail("include/arete/arete.h is not installed")

    def pkg_config(self, name):
        flags = run(
            ["pkg-config", "--cflags", "--libs", name], PKG_CONFIG_PATH=str(self.libdir / "pkgconfig")
        )
        return shlex.split(flags)

    def measure_compilation(self):
        flags = [flag for flag in self.pkg_config("arete") if flag.startswith("-I")]
        other = self.folder / "other.cpp"
        other.write_text(OTHER_PROGRAM)
        times = {self.source: [], other: []}
        for _ in range(2):
            for source, its in times.items():
                start = processor_seconds()
                run([self.arguments.compiler, "-std=c++20", "-O2", *flags, "-c", source, "-o", self.folder / "user.o"])
                its.append(processor_seconds() - start)
        took, slowness = min(times[self.source]), max(1, min(times[other]) / OTHER_S)
        limit = COMPILE_LIMIT_S * slowness
        print(f"compilation of the README's program: {took:.2f} s of a processor (limit {limit:.1f} s)")
        if took > limit:
            fail("the README's program takes too long to compile; look at the headers it includes with -ftime-report")

    def run_program(self, program, shared, **environment):
        linked = run(["ldd", program], **environment)
        if ("libarete.so" in linked) != shared:
            fail(f"{program} should {'' if shared else 'not '}be linked with libarete.so:\n{linked}")
        work = self.folder / f"run-{program.parent.name}"
        work.mkdir()
        output = run([program], cwd=work, **environment)
        print(f"{program.parent.name}: ran; last line: {(output.strip().splitlines() or ['(no output)'])[-1]}")

    def with_pkg_config(self, name, shared):
        folder = self.folder / f"pkg-config-{name}"
        folder.mkdir()
        program = folder / "user"
        run([self.arguments.compiler, "-std=c++20", "-O2", self.source, "-o", program, *self.pkg_config(name)])
        self.run_program(program, shared, LD_LIBRARY_PATH=str(self.libdir) if shared else "")

    def with_cmake(self, target, components, shared):
        folder = self.folder / f"cmake-{target.split('::')[1]}"
        folder.mkdir()
        shutil.copy(self.source, folder)
        project = CMAKE_PROJECT.format(version=self.version, components=components, target=target)
        (folder / "CMakeLists.txt").write_text(project)
        output = run(
            [self.arguments.cmake, "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={self.arguments.compiler}"]
        )
        if shared and not re.search(r"link interface of Arete::arete: interface-NOTFOUND", output):
            fail(f"libarete.so's users have to link with more than libarete.so:\n{output}")
        run([self.arguments.cmake, "--build", folder / "build"])
        program = folder / "user"
        (folder / "build/user").rename(program)
        self.run_program(program, shared)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arete-package-") as folder:
        package = Package(arguments, pathlib.Path(folder))
        package.check_nothing_names_the_first_place()
        package.measure_compilation()
        package.with_pkg_config("arete", shared=True)
        package.with_pkg_config("arete-static", shared=False)
        package.with_cmake("Arete::arete", "", shared=True)
        package.with_cmake("Arete::arete_static", "COMPONENTS static", shared=False)
    print("package: all right")


if __name__ == "__main__":
    main()
