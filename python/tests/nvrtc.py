"""NVRTC for tests of texts: it needs no GPU."""
import ctypes
import functools
import pathlib

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "arete" / "backend" / "cuda" / "device"


@functools.cache
def opened():
    """The compiler, or None."""
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so", *map(
            str, pathlib.Path("/usr/local").glob("cuda*/lib/libnvrtc.so"))):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def problems(text, options=(), arch=80):
    """What the compiler says against a text; "" where it compiles."""
    nvrtc, program = opened(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    given = [o.encode() for o in ("--std=c++17", "-default-device", f"--gpu-architecture=sm_{arch}", f"-I{HEADERS}", *options)]
    failed = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if failed else ""
