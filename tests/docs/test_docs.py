#!/usr/bin/env python3
"""Compiles and runs the C++ examples of the documentation.

Every ```cpp block of the given Markdown files is an example that works as it stands:

- a block with `int main` is a program of its own;
- every other block becomes the body of a function under `using namespace arete;`, and all of them together are one
  program. Its #include lines move to the top, and so does what stands before a line `// ---`: types and functions that
  cannot be declared inside a function.

A program must exit with 0. A comment `// prints: TEXT` names the next line that the block must print at that point; the
checked lines must be found in the output in that order. A block that shows what is not an example (a declaration, a
piece of a larger program) is fenced as ```c++ and is not looked at. A ```c block is a program of C17. Links between files
must lead somewhere.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PRELUDE = """\
#include <arete/arete.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

"""
MARK, THROWN = "@@block ", "@@thrown "


class Block:
    def __init__(self, path, line, text, language="cpp"):
        self.path, self.line, self.text, self.language = path, line, text, language
        self.is_program = re.search(r"^int main\b", text, re.MULTILINE) is not None

    @property
    def where(self):
        return f"{self.path.name}:{self.line}"

    @property
    def expected(self):
        return [m.strip() for m in re.findall(r"// prints:(.*)", self.text)]


def blocks_of(path):
    found, start, lines, language = [], None, [], ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if start is None:
            if line.strip() in ("```cpp", "```c"):
                start, lines, language = number + 1, [], line.strip()[3:]
        elif line.strip() == "```":
            found.append(Block(path, start, "\n".join(lines) + "\n", language))
            start = None
        else:
            lines.append(line)
    if start is not None:
        sys.exit(f"{path}:{start}: the code block is not closed")
    return found


def broken_links(path):
    """Links to files that are not there."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    return [f"{path.name}: the link to {t} leads nowhere" for t in targets
            if not re.match(r"[a-z]+:", t) and not (path.parent / t).exists()]


def joined_program(blocks):
    """One translation unit that runs the blocks one after another, saying which one it is at."""
    includes, parts, calls = [], [], []
    for i, block in enumerate(blocks):
        head, separator, body = block.text.partition("\n// ---\n")
        if not separator:
            head, body = "", block.text
        lines = {"head": [], "body": []}
        number = block.line
        for name, text in (("head", head), ("body", body)):
            if name == "body" and separator:
                number += head.count("\n") + 2
            # The compiler's messages then point into the page.
            lines[name].append(f'#line {number} "{block.path}"')
            for line in text.splitlines():
                if line.startswith("#include"):
                    includes.append(line)
                    line = ""
                lines[name].append(line)
        parts.append(f"namespace block_{i} {{\nusing namespace arete;")
        if separator:
            parts += lines["head"]
        parts += ["void run() {", *lines["body"], "}", "}"]
        calls.append(f"  failed += run({i}, block_{i}::run);")
    main = ["namespace {", "int run(int number, void (*block)()) {",
            f'  std::printf("%s%d\\n", "{MARK}", number);', "  std::fflush(stdout);", "  try {", "    block();",
            "    std::cout.flush();", "    std::fflush(stdout);", "    return 0;", "  } catch (const std::exception& e) {",
            f'    std::printf("%s%s\\n", "{THROWN}", e.what());', "    return 1;", "  }", "}", "}  // namespace",
            "int main() {", "  int failed = 0;", *calls, "  return failed ? 1 : 0;", "}"]
    return "\n".join([*dict.fromkeys(includes), PRELUDE, *parts, '#line 1 "main"', *main]) + "\n"


def check_output(block, output):
    """The texts after "// prints:" must be lines of the output, in that order."""
    lines, at = [line.strip() for line in output.splitlines()], 0
    for want in block.expected:
        try:
            at = lines.index(want, at) + 1
        except ValueError:
            rest = "\n    ".join(lines[at:at + 8]) or "(nothing)"
            return f"{block.where}: expected the line\n    {want}\nbut the block printed\n    {rest}"
    return ""


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def run(self, name, source, blocks):
        """Returns a list of failures."""
        where = ", ".join(dict.fromkeys(b.path.name for b in blocks))
        file, program = self.folder / f"{name}.cpp", self.folder / name
        file.write_text(source, encoding="utf-8")
        library = Path(self.options.library).resolve()
        standard = ["-std=c++20"] if blocks[0].language == "cpp" else ["-x", "c", "-std=c17", "-pedantic"]
        command = [*self.options.launcher, self.options.compiler, *standard, "-O0", "-Wall", "-Wextra",
                   *self.options.flag, f"-I{self.options.root}", str(file), "-x", "none", str(library),
                   f"-Wl,-rpath,{library.parent}", "-o", str(program)]
        compiled = subprocess.run(command, capture_output=True, text=True)
        if compiled.returncode:
            return [f"{where}: does not compile\n{compiled.stderr[:6000]}"]
        if compiled.stderr.strip():
            return [f"{where}: compiles with warnings\n{compiled.stderr[:6000]}"]
        workdir = self.folder / f"{name}.d"
        workdir.mkdir(exist_ok=True)
        try:
            ran = subprocess.run([str(program)], cwd=workdir, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return [f"{where}: still running after 300 s"]
        return self.judge(ran, blocks)

    def judge(self, ran, blocks):
        failures = []
        if len(blocks) == 1 and blocks[0].is_program:
            outputs = {0: ran.stdout}
        else:
            outputs, current = {}, None
            for line in ran.stdout.splitlines():
                if line.startswith(MARK):
                    current = int(line[len(MARK):])
                    outputs[current] = ""
                elif current is not None:
                    outputs[current] += line + "\n"
        for i, output in outputs.items():
            thrown = output.partition(THROWN)[2]
            failures += filter(None, [f"{blocks[i].where}: {thrown}" if thrown else check_output(blocks[i], output)])
        if ran.returncode and not failures:
            last = blocks[max(outputs, default=0)]
            failures.append(f"{last.where}: exit code {ran.returncode}\n{ran.stderr[-3000:]}")
        if len(outputs) != len(blocks):
            failures.append("some blocks did not run")
        return failures


def self_test():
    """The script itself: it must see what is wrong with an example."""
    text = "a\n```cpp\nint x;\n```\n```c++\nno\n```\n```cpp\nint main() {}  // prints: 1 2\n```\n"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.md"
        page.write_text(text, encoding="utf-8")
        first, second = blocks_of(page)
        assert (first.line, first.is_program, first.text) == (3, False, "int x;\n")
        assert broken_links(page) == []
        page.write_text("[a](page.md#x) [b](https://b.org) [c](none.md)", encoding="utf-8")
        assert len(broken_links(page)) == 1
        assert (second.is_program, second.expected) == (True, ["1 2"])
        assert check_output(second, "0\n 1 2\n") == ""
        assert "1 2" in check_output(second, "1\n2\n")
        twice = Block(page, 1, "// prints: a\n// prints: b\n")
        assert check_output(twice, "a\nx\nb\n") == "" and check_output(twice, "b\na\n") != ""
        split = Block(page, 1, "#include <map>\nint f();\n// ---\nf();\n")
        source = joined_program([split])
        assert source.startswith("#include <map>") and source.index("int f();") < source.index("void run()")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the source tree")
    parser.add_argument("--library", required=True, help="libarete.so or libarete.a of the build")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--launcher", nargs="*", default=[], help="before the compiler, such as ccache")
    parser.add_argument("--flag", action="append", default=[], help="a further flag for the compiler")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages; all if left out")
    parser.add_argument("--keep", type=Path, help="leave the sources in this folder")
    options = parser.parse_args()
    self_test()

    pages = [options.root / "README.md", *sorted((options.root / "docs").rglob("*.md"))]
    if options.only:
        pages = [p for p in pages if p.name in options.only]
    blocks = [b for page in pages for b in blocks_of(page)]
    if not blocks:
        sys.exit("there are no examples")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    with tempfile.TemporaryDirectory(prefix="arete-docs-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runner = Runner(options, folder.resolve())
        parts = [b for b in blocks if not b.is_program]
        jobs = [(f"program_{i}", b.text, [b]) for i, b in enumerate(b for b in blocks if b.is_program)]
        if parts:
            jobs.insert(0, ("blocks", joined_program(parts), parts))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            failures = [f for result in pool.map(lambda job: runner.run(*job), jobs) for f in result]

    failures += [f for page in pages for f in broken_links(page)]
    checks = sum(len(b.expected) for b in blocks)
    for failure in failures:
        print(failure, "\n", file=sys.stderr)
    print(f"{len(blocks)} examples of {len(pages)} pages, {checks} printed lines checked, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
