#!/usr/bin/env python3
"""Writes a C++ file that holds the texts of files: embed_files.py OUTPUT FILE..."""

import pathlib
import sys

HEADER = """// Made by tools/embed_files.py.
#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda {
const std::vector<EmbeddedFile> kEmbeddedFiles{
"""


def main():
    output, *files = sys.argv[1:]
    text = HEADER
    for file in sorted(files, key=lambda f: pathlib.Path(f).name):
        path = pathlib.Path(file)
        content = path.read_text()
        assert ')embedded"' not in content, f"{file} holds the delimiter"
        # Compilers limit the length of one literal: pieces of at most 8000 characters are joined by the compiler.
        pieces = [content[i : i + 8000] for i in range(0, len(content), 8000)] or [""]
        literal = "\n".join(f'R"embedded({p})embedded"' for p in pieces)
        text += f'    {{"{path.name}", {literal}}},\n'
    pathlib.Path(output).write_text(text + "};\n}  // namespace arete::cuda\n")


if __name__ == "__main__":
    main()
