"""Deepwave's histories in a spool: the gradients of its device mode, bit for bit."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import unspool
from unspool.codecs import Bound
from unspool.errors import CapacityError, MissingLibraryError, OptionError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
deepwave = pytest.importorskip("deepwave", reason="pip install 'deepwave>=0.1,<0.2'")

from deepwave import _engine as engine  # noqa: E402
from unspool.interop.deepwave import _engine as ours  # noqa: E402
from unspool.interop.deepwave import _known as known  # noqa: E402
from unspool.interop.deepwave import history  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

STEPS, SHOTS, SHAPE, DX, DT = 50, 2, (25, 31), 10.0, 0.002
PLAIN = {name: getattr(engine, name) for name in ("StorageManager", *known.WRAPPED)}
#: The properties of each propagator: values about which they vary.
MODELS = {
    "scalar": [1500],
    "scalar_born": [1500],
    "acoustic": [1500, 2000],
    "acoustic_born": [1500, 2000],
    "acoustic_vti": [8e9, 5e9, 6e9, 5e-4],
    "viscoacoustic": [1500, 2000, 50],
    "elastic": [4e9, 2e9, 5e-4],
    "elastic_born": [4e9, 2e9, 5e-4],
    "elastic_vti": [8e9, 2e9, 6e9, 2e9, 5e-4],
}
PERTURBED = {
    "scalar_born": ["dv"],
    "acoustic_born": ["dv", "drho"],
    "elastic_born": ["dlamb", "dmu", "dbuoyancy"],
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    # What is computed is small, and threads that wait for one another would take most of the time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _deepwave_is_as_it_was():
    yield
    if ours._patches._needs:
        gc.collect()
    assert {name: getattr(engine, name) for name in PLAIN} == PLAIN


def nothing(_):
    """A callback that makes Deepwave run in chunks."""


def chunks(every):
    """Options with which Deepwave calls its kernels as often as with a spool."""
    return {
        "forward_callback": nothing,
        "backward_callback": nothing,
        "callback_frequency": every,
    }


def models(kind="scalar", on="cpu"):
    random = torch.Generator().manual_seed(1)
    values = [*MODELS[kind], *(value * 0.1 for value in MODELS[kind] * (kind in PERTURBED))]
    varied = [value * (1 + 0.05 * torch.rand(SHAPE, generator=random)) for value in values]
    return [each.to(on).requires_grad_() for each in varied]


def record(given, kind="scalar", dt=DT, **options):
    """What receivers record, as one sum that depends on each model."""
    random = torch.Generator().manual_seed(2)
    suffix = "" if kind.startswith("scalar") else "_y"
    places = torch.randint(3, 22, (2, SHOTS, 4, 2), generator=random).to(given[0].device)
    options = {"pml_width": 5, "pml_freq": 25.0, **options}
    amplitudes = torch.randn(SHOTS, 1, STEPS, generator=random).to(given[0].device)
    options["source_amplitudes" + suffix] = amplitudes
    options["source_locations" + suffix] = places[0, :, :1]
    if kind in PERTURBED:
        options["bg_receiver_locations" + suffix] = places[1]
        options["sc_receiver_locations" + suffix] = places[1]
    else:
        options["receiver_locations" + suffix] = places[1]
    if kind == "viscoacoustic" and "q_band" not in options:
        options["q_freq"] = 25.0
    count = len(MODELS[kind])
    options.update(zip(PERTURBED.get(kind, ()), given[count:], strict=True))
    out = getattr(deepwave, kind)(*given[:count], DX, dt, **options)
    return sum(each.square().sum() for each in out if isinstance(each, torch.Tensor))


def gradients(kind="scalar", on="cpu", **options):
    given = models(kind, on)
    record(given, kind, **options).backward()
    return [each.grad for each in given]


def same(some, others):
    assert len(some) == len(others)
    return all(
        one.abs().max() > 0 and torch.equal(one, other)
        for one, other in zip(some, others, strict=True)
    )


class Poisoned:
    """A spool whose memory is full of NaN before something is computed in it."""

    def __init__(self, spool):
        self.spool, self.written = spool, 0

    def writing(self, version, **options):
        return self.poisoned(self.spool.writing(version, **options))

    @contextlib.contextmanager
    def poisoned(self, block):
        with block as tensors:
            for tensor in tensors.values():
                tensor.fill_(torch.nan)
            yield tensors
            assert all(tensor.isfinite().all() for tensor in tensors.values())
            self.written += 1

    def __contains__(self, version):
        return version in self.spool

    def __getattr__(self, name):
        return getattr(self.spool, name)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_is_that_of_the_device_mode(kind):
    expected = gradients(kind, **chunks(8))
    with unspool.Spool("32MiB") as spool:
        poisoned = Poisoned(spool)
        with history(poisoned, once=True):
            assert same(gradients(kind), expected)
        assert poisoned.written == 7, "the kernels and the margin have written all of it"
        assert len(spool) == 0


@pytest.mark.parametrize("every", [1, 7, 50, 1000])
def test_checkpoints_may_have_any_length(every):
    expected = gradients(**chunks(every))
    with unspool.Spool("32MiB") as spool, history(spool, every):
        assert same(gradients(), expected)


@pytest.mark.parametrize("accuracy", [2, 6, 8])
@pytest.mark.parametrize("kind", ["scalar", "elastic"])
def test_the_margin_is_that_of_every_stencil(kind, accuracy):
    expected = gradients(kind, accuracy=accuracy, **chunks(8))
    with unspool.Spool("32MiB") as spool, history(Poisoned(spool)):
        assert same(gradients(kind, accuracy=accuracy), expected)


def test_several_mechanisms_of_attenuation():
    options = {"q_n_mechanisms": 2, "q_band": (5.0, 50.0)}
    expected = gradients("viscoacoustic", **options, **chunks(8))
    with unspool.Spool("32MiB") as spool, history(spool):
        assert same(gradients("viscoacoustic", **options), expected)


def test_several_threads_of_a_kernel():
    torch.set_num_threads(2)
    try:
        expected = gradients(**chunks(8))
        with unspool.Spool("32MiB") as spool, history(spool):
            assert same(gradients(), expected)
    finally:
        torch.set_num_threads(1)


def test_one_and_three_dimensions():
    def run(*shape, **options):
        speed = torch.full(shape, 1500.0, requires_grad=True)
        at = torch.full((1, 1, len(shape)), 5)
        amplitudes = torch.randn(1, 1, STEPS, generator=torch.Generator().manual_seed(3))
        out = deepwave.scalar(
            speed, DX, DT, source_amplitudes=amplitudes, source_locations=at,
            receiver_locations=at + 2, pml_width=3, pml_freq=25.0, **options,
        )  # fmt: skip
        out[-1].square().sum().backward()
        return [speed.grad]

    for shape in [(20,), (10, 9, 11)]:
        expected = run(*shape, **chunks(8))
        with unspool.Spool("32MiB") as spool, history(Poisoned(spool)):
            assert same(run(*shape), expected)


def test_double_precision_a_batch_of_models_and_reflecting_boundaries():
    def run(**options):
        speed = (1500 + 50 * torch.rand(SHOTS, *SHAPE, dtype=torch.double)).requires_grad_()
        amplitudes = torch.randn(SHOTS, 1, STEPS, dtype=torch.double)
        at = torch.full((SHOTS, 1, 2), 9)
        out = deepwave.scalar(
            speed, DX, DT, source_amplitudes=amplitudes, source_locations=at,
            receiver_locations=at + 3, pml_width=[0, 5, 5, 5], pml_freq=25.0, **options,
        )  # fmt: skip
        out[-1].square().sum().backward()
        return [speed.grad]

    torch.manual_seed(4)
    expected = run(**chunks(8))
    torch.manual_seed(4)
    with unspool.Spool("32MiB") as spool, history(Poisoned(spool)):
        assert same(run(), expected)


def test_main_memory_for_a_quarter_of_it_and_the_rest_on_disk(tmp_path):
    expected = gradients("elastic", **chunks(2))
    with (
        unspool.Spool(host_memory="800KiB", disk=tmp_path) as spool,
        history(spool, 2, once=True),
    ):
        for _ in range(2):
            assert same(gradients("elastic"), expected)
        stats = spool.stats()
    assert stats.saved_bytes > 4 * 2 * 800 * 1024


@pytest.mark.parametrize(("codec", "close"), [("lossless", 0), (Bound(range=1e-5), 1e-2)])
def test_a_codec_encodes_the_history(codec, close):
    (expected,) = gradients(**chunks(8))
    with unspool.Spool("32MiB", codec=codec) as spool, history(spool):
        (got,) = gradients()
    assert (got - expected).abs().max() <= close * expected.abs().max()
    assert torch.equal(got, expected) == (close == 0)


def test_steps_that_are_divided_and_histories_that_are_sampled():
    for options in [{"dt": 0.004}, {"model_gradient_sampling_interval": 5}]:
        (expected,) = gradients(**options)
        with unspool.Spool("32MiB") as spool, history(spool, 3):
            (got,) = gradients(**options)
        assert (got - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_callbacks_are_called_as_without_a_spool():
    def run():
        seen = []

        def note(state):
            field = state.get_wavefield("wavefield_0")
            seen.append((state.direction, state.step, float(field.abs().sum())))

        frequency = {"forward_callback": note, "backward_callback": note, "callback_frequency": 5}
        return gradients(**frequency), seen

    (expected,), seen = run()
    with unspool.Spool("32MiB") as spool, history(spool, 8):
        (got,), seen_here = run()
    assert len(seen) == 20
    assert seen_here == seen
    assert (got - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_the_backward_pass_may_come_after_the_block_and_several_times():
    expected = gradients(**chunks(8))
    with unspool.Spool("32MiB") as spool:
        given = models()
        with history(spool):
            loss = record(given)
        for _ in range(2):
            assert same(torch.autograd.grad(loss, given, retain_graph=True), expected)
        assert len(spool) == 7
        assert engine.run_backward_core is not PLAIN["run_backward_core"]
        del loss
        gc.collect()
        assert len(spool) == 0


def test_what_was_discarded_cannot_be_gone_back_through_again():
    with unspool.Spool("32MiB") as spool, history(spool, once=True):
        given = models()
        loss = record(given)
        loss.backward(retain_graph=True)
        with pytest.raises(OptionError, match="once=False"):
            loss.backward()


def test_two_graphs_in_any_order():
    expected = gradients(**chunks(8)), gradients("acoustic", **chunks(8))
    with unspool.Spool("32MiB") as spool, history(spool):
        scalar, acoustic = models(), models("acoustic")
        losses = record(scalar), record(acoustic, "acoustic")
        assert same(torch.autograd.grad(losses[0], scalar), expected[0])
        assert same(torch.autograd.grad(losses[1], acoustic), expected[1])
        again = models()
        together = record(again) + record(again)
        assert torch.equal(torch.autograd.grad(together, again)[0], 2 * expected[0][0])


def test_second_derivatives():
    def run():
        given = models()
        (first,) = torch.autograd.grad(record(given), given, create_graph=True)
        return torch.autograd.grad((first * given[0].detach()).sum(), given)

    (expected,) = run()
    with unspool.Spool("32MiB") as spool, history(spool):
        (got,) = run()
        gc.collect()
        assert len(spool) == 0
    assert (got - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_the_backward_pass_is_announced_from_its_end_on(monkeypatch):
    announced, read = [], []
    monkeypatch.setattr(Poisoned, "expect", lambda s, v, once: announced.extend(v), raising=False)
    monkeypatch.setattr(
        Poisoned,
        "reading",
        lambda s, v, **o: read.append(v) or s.spool.reading(v, **o),
        raising=False,
    )
    with unspool.Spool("32MiB") as spool, history(Poisoned(spool)):
        gradients()
    assert len(announced) == 7
    assert read == announced == sorted(announced, reverse=True)


def test_no_pointer_outlives_its_checkpoint(monkeypatch):
    made = []

    class Noted(ours.Store):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(ours, "Store", Noted)
    with unspool.Spool("32MiB") as spool, history(spool):
        given = models()
        loss = record(given)
        assert [store.storage_ptrs[0] for store in made] == [0]
        loss.backward()
        assert made.pop().storage_ptrs[0] == 0


def test_a_graph_that_is_dropped_leaves_nothing():
    with unspool.Spool("32MiB") as spool, history(spool):
        loss = record(models())
        assert len(spool) == 7
        del loss
        gc.collect()
        assert len(spool) == 0
        with torch.no_grad():
            record(models())
        gc.collect()
        assert len(spool) == 0


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_exception_of_a_callback_leaves_nothing(direction):
    def fail(state):
        if state.step == 20:
            raise RuntimeError("that is enough")

    options = {f"{direction}_callback": fail, "callback_frequency": 10}
    with unspool.Spool("32MiB") as spool:
        with pytest.raises(RuntimeError, match="that is enough"), history(spool):
            gradients(**options)
        gc.collect()
        assert len(spool) == 0
        assert not ours._patches._needs
        with history(spool):
            assert same(gradients(), gradients(**chunks(8)))


def test_blocks_nest_and_threads_have_their_own():
    expected, done = gradients(**chunks(8)), {}

    def work(name, options):
        with unspool.Spool("32MiB", **options) as own, history(own):
            done[name] = [gradients() for _ in range(5)], own.stats().saves

    with unspool.Spool("32MiB") as outer, history(outer):
        threads = [threading.Thread(target=work, args=(n, {})) for n in range(2)]
        for thread in threads:
            thread.start()
        with unspool.Spool("32MiB") as inner, history(inner):
            assert same(gradients(), expected)
            assert inner.stats().saves == 7
        for thread in threads:
            thread.join(60)
        assert outer.stats().saves == 0
        assert same(gradients(), expected)
        assert outer.stats().saves == 7
    for some, saves in (done[0], done[1]):
        assert all(same(each, expected) for each in some)
        assert saves == 35


def test_another_thread_does_not_notice():
    seen = []
    with unspool.Spool("32MiB") as spool, history(spool):
        thread = threading.Thread(target=lambda: seen.append(gradients()))
        thread.start()
        thread.join(60)
        assert spool.stats().saves == 0
    assert same(seen[0], gradients())


def test_what_cannot_be_is_refused():
    needs = {"backward_callback": nothing, "backward_callback_needs_forward_wavefield": True}
    with unspool.Spool("32MiB") as spool, history(spool):
        with pytest.raises(OptionError, match="leave it at"):
            gradients(storage_mode="disk")
        with pytest.raises(OptionError, match="open the spool with a codec"):
            gradients(storage_compression=True)
        with pytest.raises(OptionError, match="two histories"):
            gradients(**needs)
        assert spool.stats().saves == 0
        assert same(gradients(), gradients())


def test_pieces_swap_and_clear_between_one_another():
    seen, scratch = [], [torch.ones(2), torch.ones(3)]

    def call(state, step, steps):
        seen.append((step, steps, float(sum(each.sum() for each in scratch))))
        for each in scratch:
            each += 1
        return 7 if step == 18 else 0

    class Store(ours.Store):
        def __init__(self):
            self.segment, self.step_ratio, self.slots = 3, 2, [0]

    state = SimpleNamespace(storage_manager=Store(), grad_models_tmp=scratch[:1], fd_pad=1)
    shown = SimpleNamespace(forward=False, show=lambda *given: seen.append(given[1:]))
    pieces = ours._Pieces(shown, call, lambda _: seen.append("swap"), scratch[1:])
    assert pieces(state, 15, 10) == 0
    assert seen == [(2, 1), (15, 3, 5), "swap", (1, 1), (12, 6, 0), (0, 1), (6, 1, 0), "swap"]
    seen.clear()
    shown.forward = True
    assert pieces(state, 16, 14) == 7
    assert seen == [(2, 1), (16, 2, 5), (3, 1), (18, 6, 10)]


def test_models_that_lie_elsewhere_are_refused():
    class Elsewhere(Poisoned):
        @contextlib.contextmanager
        def poisoned(self, block):
            with block as tensors:
                yield {name: tensor.to("meta") for name, tensor in tensors.items()}

    with unspool.Spool("32MiB") as spool, history(Elsewhere(spool)):
        with pytest.raises(OptionError, match=r"models are on cpu and the fastest tier .* meta"):
            gradients()
        assert spool.stats().saves == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that PyTorch could use")
@pytest.mark.parametrize("kind", ["scalar", "elastic"])
def test_on_a_gpu(kind):
    expected = gradients(kind, "cuda", **chunks(2))
    with (
        unspool.Spool(device_memory="4MiB", host_memory="32MiB", device="cuda:0") as spool,
        history(spool, 2),
    ):
        assert same(gradients(kind, "cuda"), expected)


def test_a_checkpoint_that_is_too_large_says_what_to_do():
    with unspool.Spool("64KiB") as spool, history(spool, 50):
        with pytest.raises(CapacityError, match="smaller `segment`"):
            gradients()
        gc.collect()
        assert len(spool) == 0


def test_no_history_is_kept_of_what_needs_none():
    with unspool.Spool("32MiB") as spool, history(spool):
        speed = models()[0].detach()
        record([speed])
        record([speed], storage_mode="none")
        assert spool.stats().saves == 0


def test_arguments_and_other_versions(monkeypatch):
    with pytest.raises(OptionError, match="not a Spool"), history(unspool.Spool):
        pass
    with unspool.Spool("1MiB") as spool:
        for every in (0, True, 1.5):
            with pytest.raises(OptionError, match="number of steps"), history(spool, every):
                pass
        monkeypatch.setattr(deepwave, "__version__", "0.2.0")
        with pytest.raises(MissingLibraryError, match=r"not that of 0\.2\.0"), history(spool):
            pass
        monkeypatch.setattr(deepwave, "__version__", "0.1.9")
        with history(spool):
            pass
        monkeypatch.setitem(known.WRAPPED, "run_forward_engine", {"no_such_argument"})
        with pytest.raises(MissingLibraryError, match="knows the engine"), history(spool):
            pass


def python(text, *folders):
    """What a new interpreter prints."""
    path = os.pathsep.join(map(str, [*folders, Path(unspool.__file__).parents[1]]))
    command, names = [sys.executable, "-c", text], {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=names, check=True).stdout


def test_nothing_is_imported_before_it_is_needed():
    text = "import sys, unspool.interop.deepwave; print({'torch', 'deepwave'} & set(sys.modules))"
    assert python(text).strip() == "set()"


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("raise ImportError('no such thing')", "cannot be imported here (no such thing)"),
        ("__version__ = '0.0.27'", "not that of 0.0.27"),
        ("__version__ = '0.1.0'", "not that of 0.1.0"),
    ],
)
def test_a_deepwave_that_has_nothing_of_what_is_needed(tmp_path, package, says):
    (tmp_path / "deepwave").mkdir()
    (tmp_path / "deepwave" / "__init__.py").write_text(package)
    printed = python(
        "import unspool\n"
        "from unspool.interop.deepwave import history\n"
        "with unspool.Spool('1MiB') as spool:\n"
        "    try:\n"
        "        history(spool).__enter__()\n"
        "    except unspool.errors.MissingLibraryError as error:\n"
        "        print(error)",
        tmp_path,
    )
    assert says in printed and "pip install" in printed
