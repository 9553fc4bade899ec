"""What a training waits for its checkpoints: `Checkpointer` beside what people use.

    python lab/benches/python/python_checkpointer_training.py [--gib 2] [--saves 10] [--dir PATH]

A model and its AdamW state on the CPU; `--gib` is the size of both together. Each method runs in a
process of its own, which changes the parameters, saves, and waits until the checkpoint is durable
before the next save; every file is synced. Another process restores the last one, whose pages were
dropped from the cache of the system before. `blocked` is the time until the state may change, of
the first, the second and the last save; `durable` is the median time until the file is synced. The
peak is that of resident memory above the state. Needs PyTorch; safetensors where it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import unspool

GIB = 1 << 30
LAYERS = 16
#: What waits until a checkpoint is durable.
Wait = Callable[[], object]


class Training:
    """A model and its optimizer, which has three tensors a parameter with the model's."""

    def __init__(self, gib: float) -> None:
        torch.set_num_threads(2)
        side = int((gib * GIB / 12 / LAYERS) ** 0.5)
        layers = [torch.nn.Linear(side, side, bias=False) for _ in range(LAYERS)]
        self.model = torch.nn.Sequential(*layers)
        self.optim = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def step(self) -> None:
        """Changes every parameter."""
        for parameter in self.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """What is saved."""
        return {"model": self.model.state_dict(), "optim": self.optim.state_dict()}

    def take(self, state: dict[str, Any]) -> None:
        """Takes what was saved."""
        self.model.load_state_dict(state["model"])
        self.optim.load_state_dict(state["optim"])

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors by name."""
        found = {f"model.{name}": one for name, one in self.model.state_dict().items()}
        for number, of in self.optim.state_dict()["state"].items():
            found |= {f"optim.{number}.{name}": one for name, one in of.items()}
        return found

    def digest(self) -> list[float]:
        """A sum of each tensor."""
        return [float(one.double().sum()) for one in self.tensors().values()]


def synced(path: Path) -> None:
    for name in (path, path.parent):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class TorchSave:
    """`torch.save`, which returns when the file is written."""

    def __init__(self, job: Training, folder: Path) -> None:
        self.job, self.folder = job, folder

    def save(self, step: int) -> Wait:
        """Saves, and returns a function that waits until the checkpoint is durable."""
        path = self.folder / f"{step}.pt"
        torch.save(self.job.state(), path)
        synced(path)
        (self.folder / f"{step - 2}.pt").unlink(missing_ok=True)
        return lambda: None

    def restore(self, step: int) -> None:
        """Restores the checkpoint of a step."""
        self.job.take(torch.load(self.folder / f"{step}.pt"))

    def close(self) -> None:
        """Nothing is open."""


class Safetensors(TorchSave):
    """`safetensors.torch.save_file`: tensors alone."""

    def save(self, step: int) -> Wait:
        """Saves, and returns a function that waits until the checkpoint is durable."""
        from safetensors.torch import save_file

        path = self.folder / f"{step}.safetensors"
        save_file(self.job.tensors(), path)
        synced(path)
        (self.folder / f"{step - 2}.safetensors").unlink(missing_ok=True)
        return lambda: None

    def restore(self, step: int) -> None:
        """Restores the checkpoint of a step."""
        from safetensors.torch import load_file

        self.job.step()
        found = load_file(self.folder / f"{step}.safetensors")
        for name, tensor in self.job.tensors().items():
            tensor.copy_(found[name])


class DcpAsync(TorchSave):
    """`torch.distributed.checkpoint.async_save`."""

    def save(self, step: int) -> Wait:
        """Saves, and returns a function that waits until the checkpoint is durable."""
        shutil.rmtree(self.folder / str(step - 2), ignore_errors=True)
        future = dcp.async_save(self.job.state(), checkpoint_id=self.folder / str(step))
        return future.result

    def restore(self, step: int) -> None:
        """Restores the checkpoint of a step."""
        self.job.step()
        state = self.job.state()
        dcp.load(state, checkpoint_id=self.folder / str(step))
        self.job.take(state)


class Ours(TorchSave):
    """`unspool.Checkpointer(path, model=model, optim=optim)`."""

    def __init__(self, job: Training, folder: Path) -> None:
        self.checkpoints = unspool.Checkpointer(
            folder / "run", every=None, model=job.model, optim=job.optim
        )

    def save(self, step: int) -> Wait:
        """Saves, and returns a function that waits until the checkpoint is durable."""
        self.checkpoints.save(step)
        return self.checkpoints.flush

    def restore(self, step: int) -> None:
        """Restores the checkpoint of a step."""
        assert self.checkpoints.restore() == step

    def close(self) -> None:
        """Ends."""
        self.checkpoints.close()


METHODS = {
    "unspool": Ours,
    "torch.save": TorchSave,
    "safetensors": Safetensors,
    "dcp async": DcpAsync,
}


def peak() -> int:
    """The most bytes of resident memory that this process has had."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def drop_pages(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def save_all(name: str, gib: float, saves: int, folder: Path) -> dict[str, Any]:
    job = Training(gib)
    job.step()
    before, blocked, durable = peak(), [], []
    method = METHODS[name](job, folder)
    for step in range(1, saves + 1):
        job.step()
        begin = time.perf_counter()
        wait = method.save(step)
        blocked.append(time.perf_counter() - begin)
        wait()
        durable.append(time.perf_counter() - begin)
    method.close()
    return {
        "blocked": [blocked[0], blocked[1], blocked[-1]],
        "durable": statistics.median(durable),
        "peak": peak() - before,
        "digest": job.digest(),
    }


def restore(name: str, gib: float, saves: int, folder: Path) -> dict[str, Any]:
    job = Training(gib)
    drop_pages(folder)
    begin = time.perf_counter()
    method = METHODS[name](job, folder)
    method.restore(saves)
    seconds = time.perf_counter() - begin
    method.close()
    return {"seconds": seconds, "digest": job.digest()}


def called(what: str, name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    words = [what, name, str(folder), "--gib", str(options.gib), "--saves", str(options.saves)]
    command = [sys.executable, "-W", "ignore", __file__, "--run", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, options: argparse.Namespace, folder: Path) -> str:
    saved = called("save_all", name, options, folder)
    if "failed" in saved:
        return f"{name:12} {saved['failed']}"
    again = called("restore", name, options, folder)
    wrong = again.get("failed") or ("" if again["digest"] == saved["digest"] else "WRONG")
    blocked = "".join(f"{seconds:9.3f}" for seconds in saved["blocked"])
    seconds = again.get("seconds", float("nan"))
    return (
        f"{name:12}{blocked}{saved['durable']:9.2f}{seconds:9.2f}{saved['peak'] / GIB:8.2f} {wrong}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        what, name, folder = options.run
        work = {"save_all": save_all, "restore": restore}[what]
        print(json.dumps(work(name, options.gib, options.saves, Path(folder))))
        return
    print(f"{options.gib} GiB of parameters and AdamW, {options.saves} saves; seconds, GiB")
    print(
        f"{'':12}{'blocked 1':>9}{'2':>9}{options.saves:>9}{'durable':>9}{'restore':>9}{'peak':>8}"
    )
    for name in METHODS:
        folder = Path(tempfile.mkdtemp(dir=options.dir))
        try:
            print(row(name, options, folder), flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
