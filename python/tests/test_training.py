"""The training loop."""
import collections
import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import arete
import arete.distributed as dist
from arete import metrics, nn, optim
from arete.nn import functional as F
from arete.training import Callback, EarlyStopping, Trainer
from arete.training._trainer import _moved
from arete.utils.data import DataLoader, TensorDataset


def _data(n=48):
    g = arete.Generator().manual_seed(0)
    x = arete.randn(n, 4, generator=g)
    return TensorDataset(x, (x.sum(1) > 0).long())


def _net():
    arete.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def _trainer(net, **options):
    optimizer = optim.AdamW(net.parameters(), 0.02)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    return Trainer(net, optimizer, F.cross_entropy, scheduler=scheduler, progress=False,
                   metrics={"accuracy": metrics.Accuracy("multiclass", num_classes=2)}, **options)


def test_fit_validate_predict():
    net, data = _net(), _data()
    trainer = _trainer(net)
    history = trainer.fit(DataLoader(data, 8, shuffle=True), DataLoader(data, 16), epochs=6)
    assert [h["epoch"] for h in history] == [1, 2, 3, 4, 5, 6] and history[-1]["step"] == 36
    assert history[-1]["train_loss"] < history[0]["train_loss"] and history[-1]["val_accuracy"] > 0.9
    assert history[-1]["lr"] < history[0]["lr"] and net.training
    out = trainer.predict(DataLoader(data, 7))
    assert out.shape == (48, 2) and arete.allclose(out, net.eval()(data.tensors[0]))
    # A last batch that is not full counts by its size.
    expected = F.cross_entropy(net(data.tensors[0]), data.tensors[1])
    assert trainer.validate(DataLoader(data, 7))["val_loss"] == pytest.approx(float(expected), rel=1e-5)
    assert arete.isfinite(trainer.loss)


class Interrupts(Callback):
    def __init__(self, *steps):
        self.steps = steps

    def on_step_end(self, trainer):
        if trainer.step in self.steps:
            trainer.interrupt()


@pytest.mark.parametrize("accumulate, workers", [(1, 0), (2, 0), (1, 2)])
def test_an_interrupted_run_goes_on_within_the_epoch(tmp_path, accumulate, workers):
    """Dropout and the order of the examples draw from one generator, and the figures are sums over the whole epoch; also where the last
    update of one, of fewer batches than the others, was the last."""
    data, ends = _data(), []
    for folder, steps in (("whole", ()), ("parts", (2, 4, 6, 7, 9))):
        for fits in range(10):
            net = _net()  # a new process
            trainer = _trainer(net, folder=str(tmp_path / folder), callbacks=[Interrupts(*steps)], accumulate=accumulate)
            loader = DataLoader(data, 7, shuffle=True, num_workers=workers)
            history = trainer.fit(loader, DataLoader(data, 16), epochs=3, resume=True)
            if trainer.epoch == 3:
                break
        assert fits == len(steps)
        ends.append((net.state_dict(), [{k: v for k, v in h.items() if k != "seconds"} for h in history]))
    (a, figures), (b, again) = ends
    assert figures == again and all(arete.equal(a[k], b[k]) for k in a)


def test_a_checkpoint_of_ones_own_within_an_epoch(tmp_path):
    """fit() goes on where load_checkpoint() has left off."""
    data, path = _data(), tmp_path / "own.pt"

    class Saves(Callback):
        def on_step_end(self, trainer):
            if trainer.step == 3:
                trainer.save_checkpoint(path)

    whole = _trainer(net := _net(), callbacks=[Saves()])
    whole.fit(DataLoader(data, 8, shuffle=True), epochs=2)
    part = _trainer(again := _net(), callbacks=[Saves()])
    part.load_checkpoint(path)
    part.fit(DataLoader(data, 8, shuffle=True), epochs=2)
    assert part.step == whole.step and part.history[0]["train_loss"] == whole.history[0]["train_loss"]
    assert all(arete.equal(v, again.state_dict()[k]) for k, v in net.state_dict().items())


def test_checkpoints_within_an_epoch(tmp_path):
    """A run that is ended by an error goes on from the latest of them."""
    data, ends = _data(), []

    class Fails(Callback):
        def on_step_end(self, trainer):
            if trainer.step == 9 and trainer.folder.endswith("fails"):
                raise KeyboardInterrupt

    for folder in ("whole", "fails"):
        trainer = _trainer(net := _net(), folder=str(tmp_path / folder), callbacks=[Fails()], checkpoint_every=2)
        try:
            trainer.fit(DataLoader(data, 8, shuffle=True), epochs=2)
        except KeyboardInterrupt:
            assert arete.load(tmp_path / folder / "last.pt")["step"] == 8
            (tmp_path / folder).rename(tmp_path / "goes_on")
            trainer = _trainer(net := _net(), folder=str(tmp_path / "goes_on"), callbacks=[Fails()])
            trainer.fit(DataLoader(data, 8, shuffle=True), epochs=2, resume=True)
        ends.append((net.state_dict(), trainer.history[-1]["train_loss"]))
    assert ends[0][1] == ends[1][1] and all(arete.equal(v, ends[1][0][k]) for k, v in ends[0][0].items())
    with pytest.raises(ValueError, match="checkpoint_every"):
        _trainer(_net(), checkpoint_every=2)
    with pytest.raises(ValueError, match="a loader that has a state_dict"):
        _trainer(_net(), folder=str(tmp_path / "list"), checkpoint_every=1).fit([data.tensors, data.tensors])


def test_a_resumed_run_has_the_same_bits(tmp_path):
    data, ends = _data(), []
    for folder, parts in (("whole", [4]), ("parts", [2, 4])):
        for epochs in parts:
            net = _net()  # a new process
            trainer = _trainer(net, folder=str(tmp_path / folder), callbacks=[EarlyStopping("val_loss", 3)])
            history = trainer.fit(DataLoader(data, 8, shuffle=True), DataLoader(data, 16), epochs=epochs, resume=True)
        ends.append((net.state_dict(), [{k: v for k, v in h.items() if k != "seconds"} for h in history], trainer.callbacks[0].best))
    (a, figures, best), (b, again, best_again) = ends
    assert all(arete.equal(a[k], b[k]) for k in a)
    assert figures == again and best == best_again
    assert len(figures) == 4


def test_best_checkpoint(tmp_path):
    class Worse(Callback):
        def on_epoch_begin(self, trainer):
            for group in trainer.optimizer.param_groups:
                group["lr"] = 0.01 if trainer.epoch < 2 else -0.1  # away from the best

    net = _net()
    trainer = Trainer(net, optim.SGD(net.parameters(), 0.01), F.cross_entropy, folder=str(tmp_path), callbacks=[Worse()], progress=False)
    data = _data()
    trainer.fit(DataLoader(data, 8), DataLoader(data, 16), epochs=4)
    best = min(trainer.history, key=lambda h: h["val_loss"])["epoch"]
    assert best < 4 and not os.path.exists(tmp_path / "best.pt.part")
    trainer.load_checkpoint(tmp_path / "best.pt")
    assert trainer.epoch == best and trainer.best == trainer.figure("val_loss")
    with pytest.raises(ValueError, match="callbacks"):
        _trainer(_net()).load_checkpoint(tmp_path / "best.pt")


def test_early_stopping():
    net = _net()
    stop = EarlyStopping("val_loss", patience=1)
    trainer = Trainer(net, optim.SGD(net.parameters(), 0.0), F.cross_entropy, callbacks=[stop], progress=False)
    loader = DataLoader(_data(), 16)
    assert len(trainer.fit(loader, loader, epochs=9)) == 3  # the first is the best, and two are not better
    assert stop.waited == 2
    with pytest.raises(ValueError, match="there is no figure 'val_loss'"):
        Trainer(net, optim.SGD(net.parameters(), 0.0), F.cross_entropy, callbacks=[EarlyStopping()], progress=False).fit(loader)


def test_accumulated_batches_are_one_larger_batch():
    ends = []
    for batch, accumulate in ((12, 1), (4, 3)):
        arete.manual_seed(2)
        net = nn.Linear(4, 2)
        trainer = Trainer(net, optim.SGD(net.parameters(), 0.1), F.cross_entropy, accumulate=accumulate, clip_norm=0.5, progress=False)
        trainer.fit(DataLoader(_data(), batch), epochs=2)
        assert trainer.step == 8
        ends.append(net.weight)
    assert arete.allclose(ends[0], ends[1], atol=1e-6)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_precision(precision):
    seen = []
    net = _net()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    trainer = Trainer(net, optim.SGD(net.parameters(), 0.1), F.cross_entropy, precision=precision, clip_norm=1.0, progress=False)
    before = float(trainer.validate(DataLoader(_data(), 16))["val_loss"])
    trainer.fit(DataLoader(_data(), 8), epochs=3)
    assert set(seen) == {getattr(arete, precision)} and trainer.scaler.is_enabled() == (precision == "float16")
    assert trainer.figure("train_loss") < before
    assert net[0].weight.dtype == arete.float32


def test_callbacks_scheduler_and_profiler():
    calls = []

    class Note(Callback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                calls.append(name)
            return super().__getattribute__(name)

        def on_step_end(self, trainer):
            trainer.should_stop = trainer.step == 3

    class Steps:
        count = 0

        def step(self):
            self.count += 1

    net = _net()
    optimizer = optim.SGD(net.parameters(), 1.0)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    trainer = Trainer(net, optimizer, F.cross_entropy, scheduler=scheduler, scheduler_interval="step", callbacks=[Note()],
                      profiler=Steps(), progress=False)
    trainer.fit(DataLoader(_data(), 24), epochs=5)
    one = ["on_epoch_begin", "on_step_end", "on_step_end", "on_epoch_end"]
    assert calls == ["on_fit_begin", *one, *one[:2], "on_epoch_end", "on_fit_end"]
    assert optimizer.param_groups[0]["lr"] == 0.125 and trainer.profiler.count == 3

    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
    Trainer(net, optimizer, F.cross_entropy, scheduler=plateau, progress=False).fit(DataLoader(_data(), 24), epochs=2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.00125)  # no figure is better by as much


def test_compiled_module():
    net = nn.Linear(4, 2)
    trainer = Trainer(net, optim.SGD(net.parameters(), 0.1), F.cross_entropy, compile=True, progress=False)
    history = trainer.fit(DataLoader(_data(), 12), epochs=3)
    assert history[-1]["train_loss"] < history[0]["train_loss"]


def test_arguments(tmp_path):
    net = nn.Linear(4, 2)
    for wrong in ({"scheduler_interval": "day"}, {"mode": "best"}, {"precision": "int8"}, {"accumulate": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Trainer(net, None, None, **wrong)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optim.SGD(net.parameters(), 0.1))
    with pytest.raises(ValueError, match="ReduceLROnPlateau wants a figure"):
        Trainer(net, None, None, scheduler=plateau, scheduler_interval="step")
    Batch = collections.namedtuple("Batch", "x y")
    assert _moved(Batch(arete.ones(1), [2]), "cpu") == Batch(arete.ones(1), [2])
    trainer = Trainer(net, optim.SGD(net.parameters(), 0.1), F.cross_entropy, progress=False)
    with pytest.raises(ValueError, match="folder"):
        trainer.fit([], resume=True)
    with pytest.raises(ValueError, match="batch"):
        trainer.predict([])


PROGRAM = """
import sys
import arete
from arete import metrics, nn, optim
from arete.nn import functional as F
from arete.training import Trainer
from arete.utils.data import DataLoader, DistributedSampler, TensorDataset

g = arete.Generator().manual_seed(0)
x = arete.randn(24, 4, generator=g)
data = TensorDataset(x, (x.sum(1) > 0).long())
arete.manual_seed(1)
net = nn.Linear(4, 2)
trainer = Trainer(net, optim.SGD(net.parameters(), 0.1), F.cross_entropy, accumulate=2, folder=sys.argv[1], progress=False,
                  metrics={"accuracy": metrics.Accuracy("multiclass", num_classes=2)})
if trainer.is_distributed:
    try:
        trainer.fit(DataLoader(data, 3))
    except ValueError as e:
        assert "DistributedSampler" in str(e)
    sampler = DistributedSampler(data, shuffle=False)
    loader, test = DataLoader(data, 3, sampler=sampler), DataLoader(data, 3, sampler=sampler)
else:
    loader, test = DataLoader(data, 6), DataLoader(data, 6)
history = trainer.fit(loader, test, epochs=2)
if trainer.rank == 0:
    print(*(f"{history[-1][k]:.6f}" for k in ("train_loss", "val_loss", "val_accuracy")), f"{float(net.weight.abs().sum()):.5f}")
"""


@pytest.mark.skipif(not os.environ.get("ARETE_PROGRAM") or not dist.is_gloo_available(), reason="needs the program arete and Gloo")
def test_two_processes_train_as_one(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    results = []
    for launcher in ([sys.executable], [os.environ["ARETE_PROGRAM"], "run", "--standalone", "--nproc-per-node", "2"]):
        done = subprocess.run([*launcher, tmp_path / "program.py", tmp_path / str(len(results))], capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == 0, done.stderr
        results.append([float(v) for v in done.stdout.split("]")[-1].split()])
    assert results[0] == pytest.approx(results[1], abs=2e-5)
    assert (tmp_path / "1" / "best.pt").exists()


WITHIN = """
import sys
import arete
from arete import metrics, nn, optim
from arete.nn import functional as F
from arete.training import Callback, Trainer
from arete.utils.data import DataLoader, DistributedSampler, TensorDataset

folder, steps = sys.argv[1], [int(step) for step in sys.argv[2:]]

class Ends(Callback):
    def on_step_end(self, trainer):
        if trainer.step in steps and trainer.rank == 1:  # one of them is told
            trainer.interrupt()
        if trainer.step == 21 and 99 in steps:  # killed
            import os
            os._exit(9)

g = arete.Generator().manual_seed(0)
x = arete.randn(60, 4, generator=g)
data = TensorDataset(x, (x.sum(1) > 0).long())
arete.manual_seed(1)
net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2))
optimizer = optim.AdamW(net.parameters(), 0.02)
trainer = Trainer(net, optimizer, F.cross_entropy, scheduler=optim.lr_scheduler.StepLR(optimizer, 5), scheduler_interval="step",
                  folder=folder, progress=False, callbacks=[Ends()], checkpoint_every=4,
                  metrics={"areas": metrics.AUROC("multiclass", num_classes=2), "accuracy": metrics.Accuracy("multiclass", num_classes=2)})
arete.manual_seed(5 + trainer.rank)  # each drops others
loader = DataLoader(data, 4, sampler=DistributedSampler(data, seed=3), num_workers=1)
history = trainer.fit(loader, DataLoader(data, 15, sampler=DistributedSampler(data)), epochs=3, resume=True)
figures = [{k: v for k, v in h.items() if k != "seconds"} for h in history]
if trainer.rank == 0:
    arete.save({"net": net.state_dict(), "figures": figures, "step": trainer.step}, folder + "/end.pt")
print(trainer.rank, trainer.epoch, trainer.step)
"""


@pytest.mark.skipif(not os.environ.get("ARETE_PROGRAM") or not dist.is_gloo_available(), reason="needs the program arete and Gloo")
def test_two_processes_go_on_within_an_epoch(tmp_path):
    """With the same bits and figures, where one of them was told to end, and where both were killed; but not by three."""
    (tmp_path / "program.py").write_text(WITHIN)

    def run(folder, *steps, processes=2, fails=False):
        command = [sys.executable, tmp_path / "program.py", tmp_path / folder, *map(str, steps)]
        if processes > 1:
            command[0:1] = [os.environ["ARETE_PROGRAM"], "run", "--standalone", "--nproc-per-node", str(processes)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else arete.load(tmp_path / folder / "end.pt")

    whole = run("whole")
    assert whole["step"] == 24 and len(whole["figures"]) == 3
    assert [run("parts", step)["step"] for step in (2, 9)] == [3, 10]
    assert "of 2 processes within an epoch" in run("parts", processes=3, fails=True)
    run("parts", 99, fails=True)
    assert arete.load(tmp_path / "parts" / "last.pt")["step"] == 20
    parts = run("parts")
    assert parts["figures"] == whole["figures"] and parts["step"] == 24
    assert all(arete.equal(v, whole["net"][k]) for k, v in parts["net"].items())


def _pictures(folder, count):
    """A small data set in the files of Fashion-MNIST."""
    folder.mkdir()
    pixels = arete.randint(0, 60, (count, 28, 28), generator=arete.Generator().manual_seed(0)).to(arete.uint8)
    labels = (arete.arange(count) % 10).to(arete.uint8)
    for i in range(count):
        pixels[i, :, 2 * (i % 10) : 2 * (i % 10) + 4] += 150
    for part in ("train", "t10k"):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            header = b"\0\0\x08" + bytes([values.dim()]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + values.numpy().tobytes()))


@pytest.mark.skipif(not os.environ.get("ARETE_PROGRAM") or not dist.is_gloo_available(), reason="needs the program arete and Gloo")
def test_the_program_trains_in_two_processes_and_goes_on(tmp_path):
    """`arete train` of two processes that is interrupted once and killed once ends with the bits and figures of one that was not."""
    _pictures(tmp_path / "data", 1203)  # no multiple of anything

    def command(name, *options, processes=2):
        program = os.environ["ARETE_PROGRAM"]
        return [program, "run", "--standalone", "--nproc-per-node", str(processes), "--no-python", program, "train", "fashion-mnist",
                "--data", tmp_path / "data", "--model", "cnn", "--epochs", "2", "--batch-size", "6", "--checkpoint-every", "7",
                "--device", "cpu", "--quiet", "--out", tmp_path / name, *options]

    def ends(name, *options, signals):
        last = tmp_path / name / "last.safetensors"
        before = last.stat().st_mtime_ns if last.exists() else 0
        with subprocess.Popen(command(name, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as running:
            while running.poll() is None and (not last.exists() or last.stat().st_mtime_ns == before):
                time.sleep(0.01)
            signals(running)
            said = running.communicate(timeout=60)[0]
        assert running.returncode != 0, said
        return said

    done = subprocess.run(command("whole"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = ends("parts", signals=lambda running: os.killpg(running.pid, signal.SIGINT))
    assert said.count("Interrupted; saved step") == 1, said
    ends("parts", "--resume", signals=lambda running: os.killpg(running.pid, signal.SIGKILL))
    refused = subprocess.run(command("parts", "--resume", processes=3), capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0 and "within an epoch a run goes on with as many processes" in refused.stderr
    done = subprocess.run(command("parts", "--resume"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    tensors, figures = [], []
    for name in ("whole", "parts"):
        tensors.append(arete.load(tmp_path / name / "last.safetensors"))
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        figures.append([{k: v for k, v in line.items() if k not in ("seconds", "images_per_second", "time")} for line in lines])
    assert figures[0] == figures[1] and [line["epoch"] for line in figures[0]] == [1, 2]
    assert figures[0][-1]["step"] == 202 and figures[0][-1]["test_accuracy"] > 0.9
    assert tensors[0].keys() == tensors[1].keys() and all(arete.equal(tensors[0][k], tensors[1][k]) for k in tensors[0])
