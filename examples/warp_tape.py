"""A long simulation in NVIDIA Warp, differentiated with a tape over a few steps at a time.

One `wp.Tape` over a loop needs the arrays of every step. Here the loop is cut into segments.
Forwards, the state with which each one starts goes into a spool. Backwards, from the last segment
to the first, that state comes back, the segment runs again under a tape of its own, and the tape is
gone back through. The arrays of one segment are all that lies on the device. The gradients are
those of one tape.

    pip install warp-lang unspool numpy
    python examples/warp_tape.py --points 256 --steps 2000 --segment 50 --host-memory 64MiB --device
    cuda:0

A tape does not keep values: it runs the adjoints of its kernels on what its arrays hold when it is
gone back through (NVIDIA/warp#1350). So each step of a segment has arrays of its own, and what else
a step reads has to be as it was in the forward pass. That is checked: a segment that runs again has
to end, bit for bit, where it ended before.
"""

import argparse
import tempfile

import numpy as np
import unspool
import warp as wp


class Changed(Exception):
    """A segment that ran again came to another state than in the forward pass."""


@wp.kernel
def react(
    speed: wp.array2d(dtype=float), u: wp.array2d(dtype=float), after: wp.array2d(dtype=float)
):
    """One step of a reaction that spreads: u + dt * (speed * laplacian(u) + u - u**3)."""
    i, j = wp.tid()
    rows, columns = u.shape[0], u.shape[1]
    up, down = u[wp.max(i - 1, 0), j], u[wp.min(i + 1, rows - 1), j]
    left, right = u[i, wp.max(j - 1, 0)], u[i, wp.min(j + 1, columns - 1)]
    here = u[i, j]
    spread = speed[i, j] * (up + down + left + right - 4.0 * here)
    after[i, j] = here + 0.1 * (spread + here - here * here * here)


@wp.kernel
def half_square(
    u: wp.array2d(dtype=float), wanted: wp.array2d(dtype=float), loss: wp.array(dtype=float)
):
    """Adds half the squared difference."""
    i, j = wp.tid()
    difference = u[i, j] - wanted[i, j]
    wp.atomic_add(loss, 0, 0.5 * difference * difference)


@wp.kernel
def differ(u: wp.array2d(dtype=float), v: wp.array2d(dtype=float), count: wp.array(dtype=int)):
    """Counts the values that are not the same; NaN is the same as NaN."""
    i, j = wp.tid()
    a, b = u[i, j], v[i, j]
    if a != b and not (wp.isnan(a) and wp.isnan(b)):
        wp.atomic_add(count, 0, 1)


class Segments:
    """A loop of `step(n, before, after)`, in segments of `len(states) - 1` steps.

    `states` are arrays of one shape with `requires_grad=True`: the first holds the state at which
    the loop starts, and afterwards the one at which it ended.
    """

    def __init__(self, step, states, steps, spool):
        self.step, self.states, self.steps, self.spool = step, states, steps, spool
        self.firsts = range(0, steps, len(states) - 1)
        self.device = states[0].device
        self._end = wp.zeros_like(states[0], requires_grad=False)

    def forward(self):
        """Runs the loop, without a tape, and saves the state at each segment's start."""
        for first in self.firsts:
            self.spool.save(first, self.states[0], stream=self._stream())
            wp.copy(self.states[0], self._run(first))
        wp.copy(self._end, self.states[0])
        return self.states[0]

    def backward(self, adjoint):
        """Turns the gradient of the last state into that of the first one, in place.

        That of whatever else the steps read adds up in the `grad` of these arrays. It is an error
        (`Changed`) if these are not as they were.
        """
        self.spool.expect(reversed(self.firsts), once=True)
        start = wp.zeros_like(self._end)
        for first in reversed(self.firsts):
            self.spool.restore(first, self.states[0], stream=self._stream())
            wp.copy(start, self.states[0])
            tape = wp.Tape()
            with tape:
                last = self._run(first)
            self._compare(first, last)
            for state in self.states:
                state.grad.zero_()
            tape.backward(grads={last: adjoint})
            wp.copy(adjoint, self.states[0].grad)
            start, self._end = self._end, start

    def _run(self, first):
        numbers = range(first, min(first + len(self.states) - 1, self.steps))
        for n in numbers:
            self.step(n, self.states[n - first], self.states[n - first + 1])
        return self.states[len(numbers)]

    def _compare(self, first, last):
        count = wp.zeros(1, int, self.device)
        wp.launch(differ, last.shape, [last, self._end], [count], device=self.device)
        if count.numpy()[0]:
            raise Changed(
                f"the segment that begins with step {first} ran again and ended in another state "
                "than in the forward pass, so that its gradient would be wrong: an array that the "
                "steps read was changed in between, or a kernel adds up in no fixed order"
            )

    def _stream(self):
        return wp.get_stream(self.device).cuda_stream if self.device.is_cuda else None


class Problem:
    """The speed of a reaction at every point, and the state that it should lead to."""

    def __init__(self, points, steps, on):
        random = np.random.default_rng(1)
        shape = (points, points)
        self.shape, self.steps, self.on = shape, steps, on
        self.speed = self._array(0.5 + random.random(shape), requires_grad=True)
        self.first = self._array(random.random(shape) - 0.5)
        self.wanted = self._array(np.sign(random.random(shape) - 0.5))

    def _array(self, values, **options):
        return wp.array(values.astype(np.float32), dtype=float, device=self.on, **options)

    def states(self, count):
        """So many arrays, the first of them with the first state."""
        made = [wp.zeros(self.shape, float, self.on, requires_grad=True) for _ in range(count)]
        wp.copy(made[0], self.first)
        return made

    def step(self, n, before, after):
        """What `Segments` calls: the reaction does not depend on the number of the step."""
        wp.launch(react, self.shape, inputs=[self.speed, before], outputs=[after], device=self.on)

    def loss(self, last):
        """What the last state is judged by."""
        loss = wp.zeros(1, float, self.on, requires_grad=True)
        wp.launch(half_square, self.shape, [last, self.wanted], [loss], device=self.on)
        return loss

    def whole(self):
        """One tape over all steps: the loss, and both gradients."""
        self.speed.grad.zero_()
        states, tape = self.states(self.steps + 1), wp.Tape()
        with tape:
            for n in range(self.steps):
                self.step(n, states[n], states[n + 1])
            loss = self.loss(states[-1])
        tape.backward(loss)
        return loss.numpy()[0], self.speed.grad.numpy().copy(), states[0].grad.numpy()

    def segmented(self, segment, spool, between=None):
        """The same with a tape over a segment at a time; `between` is called between the passes."""
        self.speed.grad.zero_()
        segments = Segments(self.step, self.states(segment + 1), self.steps, spool)
        last, tape = segments.forward(), wp.Tape()
        with tape:
            loss = self.loss(last)
        tape.backward(loss)
        adjoint = wp.clone(last.grad, requires_grad=False)
        if between is not None:
            between(self)
        segments.backward(adjoint)
        return loss.numpy()[0], self.speed.grad.numpy().copy(), adjoint.numpy()


def main(arguments=None):
    """Compares both: the loss and the two gradients of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=64, help="in each of two directions")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--segment", type=int, default=15, help="steps of a segment")
    parser.add_argument(
        "--host-memory", default="128KiB", help="main memory of the spool; the rest on disk"
    )
    parser.add_argument("--device-memory", help="memory of the GPU for the spool")
    parser.add_argument("--device", default="cpu", help="where Warp computes: cpu, cuda:0, ...")
    options = parser.parse_args(arguments)
    problem = Problem(options.points, options.steps, options.device)
    tiers = (
        {"device_memory": options.device_memory, "device": options.device}
        if options.device_memory
        else {}
    )
    with (
        tempfile.TemporaryDirectory() as disk,
        unspool.Spool(host_memory=options.host_memory, disk=disk, **tiers) as spool,
    ):
        ours = problem.segmented(options.segment, spool)
        print(spool.stats())
    theirs = problem.whole()
    arrays = 2 * (options.steps + 1), 2 * (options.segment + 1)
    size = 4 * options.points**2 / 2**20
    print(f"\none tape    {arrays[0]:6} arrays, {arrays[0] * size:.1f} MiB with their gradients")
    print(f"segments    {arrays[1]:6} arrays, {arrays[1] * size:.1f} MiB, and the spool's tiers")
    names = "loss", "gradient of the speed", "gradient of the first state"
    for name, one, other in zip(names, ours, theirs, strict=True):
        difference = np.abs(one - other).max() / np.abs(other).max()
        print(f"largest difference of the {name}: {difference:.1e}")
    return ours, theirs


if __name__ == "__main__":
    main()
