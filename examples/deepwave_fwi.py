"""Full-waveform inversion with Deepwave, whose wavefield history lies in a spool.

Deepwave's compiled kernels compute the waves; what they keep of every step for the gradient goes
into the spool, of which main memory holds a part. The first gradient is compared with those of
Deepwave's own places for the history, with the time and the main memory that each one takes.

    pip install "deepwave>=0.1,<0.2" unspool
    python examples/deepwave_fwi.py

With the Marmousi model (`--model marmousi_vp.f32 --shape 1601 401 --spacing 7.5`), `--thin 2`
takes every second point in x and in z; `--seconds 4 --shots 8 --host-memory 1GiB` make it a larger
run. `--device cuda:0 --device-memory 256MiB` computes on a GPU, whose memory holds the newest part
of the history.

Units: metres, seconds, m/s. Arrays have axes (x, z), z is depth.
"""

import argparse
import contextlib
import functools
import tempfile
import time
from dataclasses import dataclass

import deepwave
import numpy as np
import torch
import unspool
from unspool.interop.deepwave import history


@dataclass
class Survey:
    """What is shot, and what was recorded."""

    spacing: float
    dt: float
    frequency: float
    wavelets: torch.Tensor
    sources: torch.Tensor
    receivers: torch.Tensor
    recorded: torch.Tensor | None = None

    def record(self, speed, **options):
        """What the receivers hear: (shots, receivers, steps)."""
        return deepwave.scalar(
            speed,
            self.spacing,
            self.dt,
            source_amplitudes=self.wavelets,
            source_locations=self.sources,
            receiver_locations=self.receivers,
            pml_freq=self.frequency,
            **options,
        )[-1]

    def misfit(self, speed, **options):
        """Half the squared difference to what was recorded."""
        return 0.5 * (self.record(speed, **options) - self.recorded).square().sum()


def plan(speed, options):
    """Shots and receivers along the surface, and what they record over the true model."""
    width, spacing = speed.shape[0], options.spacing * options.thin
    dt = 0.5 * spacing / float(speed.max())
    steps = int(options.seconds / dt)
    wavelet = deepwave.wavelets.ricker(options.frequency, steps, dt, 1.5 / options.frequency)
    wavelet = wavelet.to(speed.device)
    at = torch.linspace(3, width - 4, options.shots, device=speed.device).round().long()
    receivers = torch.arange(2, width - 2, 2, device=speed.device)
    survey = Survey(
        spacing,
        dt,
        options.frequency,
        wavelet.repeat(options.shots, 1, 1),
        torch.stack([at, torch.full_like(at, 2)], -1)[:, None],
        torch.stack([receivers, torch.full_like(receivers, 2)], -1).repeat(options.shots, 1, 1),
    )
    survey.recorded = survey.record(speed)
    return survey


def gradient(survey, speed, **options):
    """The misfit, and its gradient with respect to the speed at every point."""
    speed = speed.detach().requires_grad_()
    misfit = survey.misfit(speed, **options)
    misfit.backward()
    return misfit.detach(), speed.grad


def measured(function, place):
    """The result of a call, its seconds, and the MiB by which memory grew meanwhile.

    On a GPU that is PyTorch's memory there, and else main memory.
    """
    if place.type == "cuda":
        torch.cuda.synchronize(place)
        torch.cuda.reset_peak_memory_stats(place)
        before, start = torch.cuda.memory_allocated(place), time.perf_counter()
        result = function()
        torch.cuda.synchronize(place)
        more = torch.cuda.max_memory_allocated(place) - before
        return result, time.perf_counter() - start, more / 2**20
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak begins again
    before, start = _memory("VmRSS"), time.perf_counter()
    result = function()
    return result, time.perf_counter() - start, (_memory("VmHWM") - before) / 1024


def _memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def compare(survey, speed, options, disk):
    """The gradient with the history in each place: by its name, the misfit and the gradient."""
    own = {"storage_path": disk}
    # Deepwave adds up what each call of its kernels gives: as many calls, the same rounding.
    calls = dict.fromkeys(["forward_callback", "backward_callback"], lambda state: None)
    ways = {
        "device": {},
        "device, in chunks": {**calls, "callback_frequency": options.segment},
        "cpu": {"storage_mode": "cpu"},
        "disk": {"storage_mode": "disk", **own},
        "spool": None,
    }
    found, took = {}, {}
    for name, given in ways.items():
        with contextlib.ExitStack() as stack:
            if given is None:
                spool = stack.enter_context(opened(options, disk))
                stack.enter_context(history(spool, options.segment, once=True))
            call = functools.partial(gradient, survey, speed, **(given or {}))
            found[name], *took[name] = measured(call, speed.device)
    print(f"{'history in':>18}  seconds  MiB more  gradient differs from that of the spool by")
    of_spool = found["spool"][1]
    for name, (seconds, memory) in took.items():
        differs = float((found[name][1] - of_spool).abs().max() / of_spool.abs().max())
        print(f"{name:>18}  {seconds:7.2f}  {memory:8.0f}  {differs:.1e}")
    return found


def opened(options, disk):
    """A spool of which main memory holds a part, and whose checkpoints are read once."""
    tiers = {"device_memory": options.device_memory} if options.device_memory else {}
    tiers |= {"host_memory": options.host_memory, "disk": disk, "device": options.device}
    return unspool.Spool(**tiers, codec=options.codec)


def invert(survey, speed, options, spool):
    """Some iterations from a smooth model: the misfit before each, and the last model."""
    speed, misfits = speed.clone().requires_grad_(), []
    optimiser = torch.optim.Adam([speed], lr=options.rate)
    for number in range(options.iterations):
        optimiser.zero_grad()
        with history(spool, options.segment, once=True):
            misfit = survey.misfit(speed)
            misfit.backward()
        optimiser.step()
        misfits.append(misfit.item())
        print(f"iteration {number}: misfit {misfits[-1]:.4g}")
    return misfits, speed.detach()


def layers(shape=(160, 70)):
    """Layers over one another, bent and cut by two faults, under water: m/s."""
    x, z = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    depth = z + 0.06 * np.sin(5 * x) - 0.08 * (x > 0.35 + 0.2 * z) + 0.12 * (x > 0.7 - 0.15 * z)
    speed = 1600 + 2200 * depth + 250 * np.sign(np.sin(40 * depth))
    return np.where(z < 0.12, 1500, np.clip(speed, 1500, 4500)).astype(np.float32)


def smoothed(speed):
    """The model that the inversion begins with: the true one, blurred except in the water."""
    width = 21
    padded = torch.nn.functional.pad(speed[None, None], [width // 2] * 4, mode="replicate")
    blurred = torch.nn.functional.avg_pool2d(padded, width, stride=1)[0, 0]
    return torch.where(speed <= 1500, speed, blurred)


def arguments(given=None):
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="raw float32 in km/s, x first; by default bent layers")
    parser.add_argument("--shape", nargs=2, type=int, metavar=("NX", "NZ"), default=(160, 70))
    parser.add_argument("--spacing", type=float, default=20.0, help="metres")
    parser.add_argument("--thin", type=int, default=1, help="take every so-manieth point")
    parser.add_argument("--seconds", type=float, default=1.6, help="of each record")
    parser.add_argument("--frequency", type=float, default=6.0, help="Hz")
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--rate", type=float, default=15.0, help="m/s an iteration")
    parser.add_argument("--segment", type=int, default=8, help="steps in a checkpoint")
    parser.add_argument(
        "--host-memory", default="16MiB", help="main memory of the spool; the rest on disk"
    )
    parser.add_argument("--codec", help="such as lossless")
    parser.add_argument("--device", default="cpu", help="where Deepwave computes: cpu, cuda:0, ...")
    parser.add_argument(
        "--device-memory", help="memory of the GPU for the spool, which a GPU needs"
    )
    return parser.parse_args(given)


def main(given=None):
    """Compares the first gradient, and inverts: the gradients by their place, and the misfits."""
    options = arguments(given)
    speed = layers(options.shape)
    if options.model:
        speed = 1000 * np.fromfile(options.model, "<f4").reshape(options.shape)
    true = torch.from_numpy(speed[:: options.thin, :: options.thin].copy()).to(options.device)
    survey = plan(true, options)
    size = survey.wavelets.shape[-1] * options.shots * true.numel() * 4 / 2**20
    print(f"{options.shots} shots, {survey.wavelets.shape[-1]} steps, {true.shape[0]} x ", end="")
    print(f"{true.shape[1]} points: a history of more than {size:.0f} MiB\n")
    start = smoothed(true)
    with tempfile.TemporaryDirectory() as disk:
        found = compare(survey, start, options, disk)
        print()
        with opened(options, disk) as spool:
            misfits, _ = invert(survey, start, options, spool)
            print(f"\n{spool.stats()}")
    return found, misfits


if __name__ == "__main__":
    main()
