"""Extensions in C++ and CUDA, written for PyTorch's C++ or Arete's: compiled when a program asks for them, or by setuptools.

    lltm = load("lltm", ["lltm.cpp"])
    setup(ext_modules=[CppExtension("lltm_cpp", ["lltm.cpp"])], cmdclass={"build_ext": BuildExtension})

`#include <torch/extension.h>` gives torch::Tensor, the usual functions, TORCH_CHECK, AT_DISPATCH_FLOATING_TYPES and the others,
TORCH_LIBRARY and PYBIND11_MODULE for functions (docs/python.md says how far); `#include "arete/arete.h"` all of Arete.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Iterator, Optional, Sequence, Union

from .. import _C

__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "SyclExtension", "get_compiler_abi_compatibility_and_version",
           "include_paths", "is_ninja_available", "library_paths", "load", "load_inline", "verify_ninja_availability"]

_nvcc = shutil.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if os.access("/usr/local/cuda/bin/nvcc", os.X_OK) else None)
CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or (os.path.dirname(os.path.dirname(_nvcc)) if _nvcc else None)
ROCM_HOME = None

_PACKAGE = pathlib.Path(__file__).absolute().parents[1]
_STANDARD = "-std=c++20"
_SUFFIXES_OF_CUDA = (".cu", ".cuh")


def _library() -> pathlib.Path:
    """The library that this process runs on."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if re.search(r"/libarete\.so[.\d]*$", "/" + path):
            return pathlib.Path("/" + path)
    raise RuntimeError("cpp_extension: the library libarete.so is not loaded as a file of its own")


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """The folders of headers: those for extensions, Arete's own, and for "cuda" the toolkit's. RuntimeError without them."""
    own = _PACKAGE / "include"
    above = pathlib.Path(__file__).resolve().parents[3]  # of the sources, in a tree that was built
    paths = [own, next((p for p in (own, above) if (p / "arete" / "arete.h").exists()), None)]
    if paths[1] is None:
        raise RuntimeError("cpp_extension: the headers of Arete are not installed with this package")
    if device_type == "cuda" and CUDA_HOME:
        paths.append(pathlib.Path(CUDA_HOME, "include"))
    return list(dict.fromkeys(map(str, paths)))


def library_paths(device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: Optional[str] = None) -> list[str]:
    """The folder of libarete.so, and for "cuda" that of the toolkit's libraries."""
    return [str(_library().parent)] + ([os.path.join(CUDA_HOME, "lib64")] if device_type == "cuda" and CUDA_HOME else [])


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple:
    """Whether the compiler can be used, and its version: g++ from 11 and clang++ from 14 on know C++20 well enough."""
    said = subprocess.run([*shlex.split(compiler), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said.partition("\n")[0])
    version = tuple(int(n or 0) for n in found.groups()) if found else (0, 0, 0)
    from ..torch_version import TorchVersion

    return version >= ((14, 0, 0) if "clang" in said else (11, 0, 0)), TorchVersion(".".join(map(str, version)))


def is_ninja_available() -> bool:
    """Whether there is a program "ninja". Nothing here needs it."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError without a program "ninja"."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def _need_nvcc() -> str:
    nvcc = os.path.join(CUDA_HOME, "bin", "nvcc") if CUDA_HOME else ""
    if not os.access(nvcc, os.X_OK):
        raise RuntimeError("cpp_extension: sources in CUDA need nvcc, which is not here: install CUDA's toolkit and set CUDA_HOME")
    return nvcc


def _architectures() -> list[str]:
    """nvcc's options for the GPUs to compile for: TORCH_CUDA_ARCH_LIST, those of this machine, or the toolkit's choice."""
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    numbers = [n.replace(".", "").replace("+PTX", "") for n in re.split(r"[;\s]+", named) if n]
    if not numbers and _C._cuda.device_count():
        return ["-arch=native"]
    return [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]


def _cpp_flags(name: str) -> list[str]:
    return [_STANDARD, "-fPIC", "-O2", f"-DTORCH_EXTENSION_NAME={name}"]


def _cuda_flags(name: str) -> list[str]:
    return [_STANDARD, "-O2", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr", "--expt-extended-lambda",
            "-diag-suppress=1835",  # attributes of the host's compiler
            f"-DTORCH_EXTENSION_NAME={name}", *_architectures()]


def _link_flags(with_cuda: bool) -> list[str]:
    library = _library()
    flags = [str(library), f"-Wl,-rpath,{library.parent}"]
    return flags + ([f"-L{CUDA_HOME}/lib64", "-lcudart"] if with_cuda else [])


def _run(command: list[str], name: str, verbose: bool) -> None:
    if verbose:
        print(shlex.join(command), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Error building extension '{name}': {shlex.join(command)}\n{done.stdout}{done.stderr}")
    if verbose and done.stderr:
        print(done.stderr, file=sys.stderr)


def _folder_of(name: str, build_directory: Optional[str]) -> pathlib.Path:
    if build_directory is not None:
        return pathlib.Path(build_directory)
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "arete", "extensions",
        f"py{sys.version_info[0]}{sys.version_info[1]}")
    return pathlib.Path(root, name)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """One process at a time builds in a folder; the lock ends with the process."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _list(values: Union[None, str, Sequence[str]]) -> list[str]:
    return [] if values is None else [values] if isinstance(values, str) else [str(v) for v in values]


def load(name: str, sources: Union[str, Sequence[str]], extra_cflags: Any = None, extra_cuda_cflags: Any = None,
         extra_sycl_cflags: Any = None, extra_ldflags: Any = None, extra_include_paths: Any = None,
         build_directory: Optional[str] = None, verbose: bool = False,
         with_cuda: Optional[bool] = None, with_sycl: Optional[bool] = None, is_python_module: bool = True, is_standalone: bool = False,
         keep_intermediates: bool = True) -> Any:
    """Compiles sources of C++ (.cpp, .cc, ...) and CUDA (.cu), unless they and the options have been, and imports the module.

    With is_python_module=False the library is loaded for its TORCH_LIBRARY, and its path is given. It lies in build_directory, or below
    TORCH_EXTENSIONS_DIR or ~/.cache/arete/extensions. The compiler is $CXX, or c++. RuntimeError with the compiler's words where it finds
    errors, and for CUDA without nvcc; NotImplementedError for is_standalone (a program) and sources in SYCL.
    """
    if is_standalone:
        raise NotImplementedError("cpp_extension.load(): is_standalone: programs in C++ use the library itself (docs/build.md)")
    if with_sycl or extra_sycl_cflags:
        raise NotImplementedError("cpp_extension.load(): there are no sources in SYCL: Arete has no such devices")
    files = [pathlib.Path(s).absolute() for s in _list(sources)]
    cuda = any(f.suffix in _SUFFIXES_OF_CUDA for f in files)
    nvcc = _need_nvcc() if cuda or with_cuda else ""
    folder = _folder_of(name, build_directory)
    folder.mkdir(parents=True, exist_ok=True)
    own = [*include_paths("cuda" if nvcc else "cpu"), sysconfig.get_paths()["include"]]
    includes = [f"-I{p}" for p in [*_list(extra_include_paths), *own]]
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    with _locked(folder):
        objects, commands, read = [], [], []
        for i, file in enumerate(files):
            objects.append(folder / f"{file.stem}.{i}{file.suffix}.o")
            read.append(objects[-1].with_suffix(".d"))
            if file.suffix in _SUFFIXES_OF_CUDA:
                tool = [nvcc, *_cuda_flags(name), *_list(extra_cuda_cflags)]
            else:
                tool = [*compiler, *_cpp_flags(name), *_list(extra_cflags)]
            commands.append([*tool, *includes, "-MMD", "-MF", str(read[-1]), "-c", str(file), "-o", str(objects[-1])])
        link = [*compiler, "-shared", *map(str, objects), *_link_flags(bool(nvcc)), *_list(extra_ldflags), "-o"]

        def target() -> pathlib.Path:
            """The library of what is there now. The interpreter knows modules by their files, so that others have other names."""
            parts = [*map(shlex.join, [*commands, link]), *(f.read_text() for f in files), str(_library().stat().st_mtime_ns)]
            for d in read:
                parts += [f"{h} {h.stat().st_mtime_ns}" if h.exists() else f"{h} is gone" for h in _headers(d)]
            return folder / f"{name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.so"

        library = target()
        if not library.exists() or not all(d.exists() for d in read):
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for work in [pool.submit(_run, command, name, verbose) for command in commands]:
                    work.result()
            library = target()  # with the headers that were read
            new = folder / f"{name}.new.so"  # a library that is in use is not written to
            _run([*link, str(new)], name, verbose)
            new.replace(library)
            for other in folder.glob("*.so"):
                if other != library and re.fullmatch(re.escape(name) + "-[0-9a-f]{16}", other.stem):
                    other.unlink()
            if not keep_intermediates:
                for o in objects:
                    o.unlink(missing_ok=True)
        if is_python_module:
            return _import(name, library)
        import ctypes

        ctypes.CDLL(str(library))
        return str(library)


def _headers(file: pathlib.Path) -> list[pathlib.Path]:
    """What a compiler read, by the rule for make that it wrote."""
    if not file.exists():
        return []
    words = re.split(r"(?<!\\)\s+", file.read_text().replace("\\\n", " ").partition(": ")[2].strip())
    return [pathlib.Path(w.replace("\\ ", " ")) for w in words if w]


def _import(name: str, path: pathlib.Path) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def load_inline(name: str, cpp_sources: Union[str, Sequence[str]], cuda_sources: Any = None, sycl_sources: Any = None,
                functions: Any = None, extra_cflags: Any = None, extra_cuda_cflags: Any = None, extra_sycl_cflags: Any = None,
                extra_ldflags: Any = None,
                extra_include_paths: Any = None, build_directory: Optional[str] = None, verbose: bool = False,
                with_cuda: Optional[bool] = None, with_sycl: Optional[bool] = None, is_python_module: bool = True,
                with_pytorch_error_handling: bool = True, keep_intermediates: bool = True, use_pch: bool = False,
                no_implicit_headers: bool = False) -> Any:
    """load() of sources that are texts. `functions` (a name, a list of names, or a dict of names and their documentation) become functions
    of the module; `#include <torch/extension.h>` stands before the sources unless no_implicit_headers.

    >>> source = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
    >>> twice = load_inline("twice", source, functions="twice").twice  # doctest: +SKIP
    """
    if sycl_sources:
        raise NotImplementedError("cpp_extension.load_inline(): there are no sources in SYCL: Arete has no such devices")
    texts, kernels = _list(cpp_sources), _list(cuda_sources)
    if kernels and not no_implicit_headers:
        kernels = ["#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n#include <c10/cuda/CUDAStream.h>", *kernels]
    parts = [f'#line 1 "{name}.cpp"\n{text}' for text in texts]
    if not no_implicit_headers:
        parts.insert(0, "#include <torch/extension.h>")
    if functions is not None:
        if not isinstance(functions, dict):
            functions = {f: f for f in _list(functions)}
        parts.append("\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *(
            f'  m.def("{f}", &{f}, R"({doc})");' for f, doc in functions.items()), "}"]))
    folder = _folder_of(name, build_directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = {"main.cpp": "\n".join(parts) + "\n", **({"cuda.cu": "\n".join(kernels) + "\n"} if kernels else {})}
    for file, text in files.items():
        if not (folder / file).exists() or (folder / file).read_text() != text:
            (folder / file).write_text(text)
    return load(name, [str(folder / f) for f in files], extra_cflags, extra_cuda_cflags, extra_sycl_cflags, extra_ldflags,
                extra_include_paths, build_directory, verbose, with_cuda, with_sycl, is_python_module,
                keep_intermediates=keep_intermediates)


# ---- setuptools, which only needs who builds with it


def _extension(name: str, sources: Any, with_cuda: bool, args: tuple, kwargs: dict) -> Any:
    import setuptools

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths("cuda" if with_cuda else "cpu")]
    kwargs["extra_link_args"] = [*kwargs.get("extra_link_args", []), *_link_flags(with_cuda)]
    kwargs["language"] = "c++"
    return setuptools.Extension(name, sources, *args, **kwargs)


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """A setuptools.Extension of sources in C++, for BuildExtension."""
    return _extension(name, sources, False, args, kwargs)


def CUDAExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """The same with sources in CUDA. RuntimeError without nvcc."""
    _need_nvcc()
    return _extension(name, sources, True, args, kwargs)


def SyclExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError: there are no such devices."""
    raise NotImplementedError("cpp_extension.SyclExtension: there are no sources in SYCL: Arete has no such devices")


def _make_build_extension() -> type:
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):  # type: ignore[misc]
        """setuptools' build_ext with the options of extensions: extra_compile_args may be a dict of lists for "cxx" and "nvcc".

        use_ninja is taken as torch's is and decides nothing: setuptools compiles.
        """

        @classmethod
        def with_options(cls, **options: Any) -> type:
            return type(cls.__name__, (cls,), {"_options": options})

        _options: dict = {}

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            own = {**self._options, **{k: kwargs.pop(k) for k in ("use_ninja", "no_python_abi_suffix") if k in kwargs}}
            super().__init__(*args, **kwargs)
            self.no_python_abi_suffix = own.get("no_python_abi_suffix", False)

        def get_ext_filename(self, ext_name: str) -> str:
            path = super().get_ext_filename(ext_name)
            if self.no_python_abi_suffix:
                path = path.removesuffix(sysconfig.get_config_var("EXT_SUFFIX")) + ".so"
            return path

        def build_extension(self, ext: Any) -> None:
            short = ext.name.rpartition(".")[2]
            given = ext.extra_compile_args
            cxx, of_nvcc = (given.get("cxx", []), given.get("nvcc", [])) if isinstance(given, dict) else (given, given)
            ext.extra_compile_args = []
            compiler = self.compiler
            compiler.src_extensions += [e for e in _SUFFIXES_OF_CUDA if e not in compiler.src_extensions]
            compile_one = compiler._compile

            def compile_(obj: str, src: str, extension: str, flags: Any, after: Any, macros: Any) -> None:
                if extension not in _SUFFIXES_OF_CUDA:
                    return compile_one(obj, src, extension, flags, [*after, *_cpp_flags(short), *cxx], macros)
                self.spawn([_need_nvcc(), *_cuda_flags(short), *of_nvcc, *macros, "-c", src, "-o", obj])

            compiler._compile = compile_
            try:
                super().build_extension(ext)
            finally:
                compiler._compile = compile_one

    return BuildExtension


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":
        made = globals()[name] = _make_build_extension()
        return made
    raise AttributeError(f"module 'arete.utils.cpp_extension' has no attribute {name!r}")
