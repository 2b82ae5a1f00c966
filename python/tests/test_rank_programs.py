"""Programs of several processes as users write them (rank_programs.py, more_rank_programs.py): run on `arete.as_torch` unchanged, they give
what PyTorch gives with Gloo."""
import json
import pathlib
import subprocess
import sys

import pytest
from device_helpers import without_gpus
from peer import peer
from test_distributed import needs_gloo

PROGRAMS = {"rank_programs.py": 34, "more_rank_programs.py": 36}  # how many there are
torch = peer("torch")
# Of programs that compute in float32, and of values that a program gives as ("bf16", tensor).
CLOSE, CLOSE_BF16 = 2e-5, 2e-2


def differences(ours, theirs, close=CLOSE, where=""):
    if isinstance(ours, dict) and isinstance(theirs, dict) and "tensor" in ours and "tensor" in theirs:
        a, b = ours, theirs
        if a["shape"] != b["shape"] or a["dtype"] != b["dtype"] or any(
                p != q and not abs(p - q) <= close * max(1.0, abs(q)) for p, q in zip(a["tensor"], b["tensor"])):
            yield where, a, b
    elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            yield from differences(ours[key], theirs[key], close, f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        if ours[:1] == ["bf16"]:
            close = CLOSE_BF16
        for k, (a, b) in enumerate(zip(ours, theirs)):
            yield from differences(a, b, close, f"{where}[{k}]")
    elif isinstance(ours, float) and isinstance(theirs, float):
        if not abs(ours - theirs) <= close * max(1.0, abs(theirs)):
            yield where, ours, theirs
    elif ours != theirs:
        yield where, ours, theirs


@needs_gloo
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("file", PROGRAMS)
def test_programs_are_those_of_torch(tmp_path, file, size):
    program = str(pathlib.Path(__file__).with_name(file))
    launched, results = {}, {}
    commands = {"ours": ["arete.distributed.run", "--standalone", "--nproc-per-node", str(size), "-m", "arete.as_torch", program]}
    try:
        torch.ones(1)
        commands["theirs"] = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(size), program]
    except pytest.skip.Exception:
        pass  # then ours are to have no errors
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        launched[name] = subprocess.Popen([sys.executable, "-m", *command, str(tmp_path / name)], stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True, env=without_gpus(OMP_NUM_THREADS="1"))
    for name, process in launched.items():
        out = process.communicate(timeout=240)[0]
        assert process.returncode == 0, out
        results[name] = [json.loads((tmp_path / name / str(rank)).read_text()) for rank in range(size)]
        for rank, ran in enumerate(results[name]):
            assert len(ran) >= PROGRAMS[file]
            assert [(one, said["error"]) for one, said in ran.items() if "error" in said] == [], (name, rank)
    if "theirs" in results:
        assert list(differences(results["ours"], results["theirs"])) == []
