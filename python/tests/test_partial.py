"""`load` of some arrays, and of parts of arrays: what is read, and what NumPy gives of them."""

import random
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool import _partial, cli
from unspool.errors import CorruptCheckpointError, OptionError, UnknownVersionError

SHAPE = (40, 30, 70)


def field(shape=SHAPE, dtype="float64"):
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


def durable(path, mode="a", **more):
    disk = unspool.Disk(path, durable=True, mode=mode)
    return unspool.Spool(host_memory="64MiB", disk=disk, **more)


@pytest.fixture(params=["memory", "durable", "reopened", "packed", "encoded"])
def saved(request, tmp_path):
    """A spool with an array and a tree under version 3, in each way in which they can be there."""
    kind, u = request.param, field()
    codec = "lossless" if kind == "encoded" else None
    disk = unspool.Disk(tmp_path, durable=True, compress="zstd" if kind == "packed" else None)
    tree = {"w": u[0], "lr": 0.5, "more": [u[1], "text"]}
    options = {} if kind == "memory" else {"disk": disk}
    spool = unspool.Spool(host_memory="64MiB", codec=codec, **options)
    spool.save(3, u=u, n=np.arange(5), model=tree, t=2.5)
    spool.save(4, u)
    if kind != "memory":
        spool.flush()
    if kind == "reopened":
        spool.close()
        spool = durable(tmp_path, "r")
    with spool:
        yield spool, u


def test_one_array_or_some_or_an_entry_of_the_tree(saved):
    spool, u = saved
    assert np.array_equal(spool.load(3, "u"), u)
    some = spool.load(3, "n", "t")
    assert list(some) == ["n", "t"]
    assert some["t"] == 2.5 and np.array_equal(some["n"], np.arange(5))
    model = spool.load(3, "model")
    assert model["lr"] == 0.5 and model["more"][1] == "text"
    assert np.array_equal(model["w"], u[0]) and np.array_equal(model["more"][0], u[1])
    assert np.array_equal(spool.load(3, "model/w"), u[0])


INDEXES = [
    np.s_[3],
    np.s_[-1],
    np.s_[2:5],
    np.s_[..., 3],
    np.s_[4, 5, 6],
    np.s_[:, 2:3, ::7],
    np.s_[::-1],
    np.s_[30:10:-3, ..., -5:],
    np.s_[5:5],
    np.s_[:, 29, :],
    np.s_[7, 3:, 2],
    np.s_[...],
    np.s_[1:1000, -1000:2],
]


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_region_is_what_numpy_gives(saved, index):
    spool, u = saved
    found = spool.load(3, "u", region=index)
    assert found.dtype == u.dtype and found.shape == u[index].shape
    assert np.array_equal(found, u[index])


def test_random_regions_of_random_arrays(tmp_path):
    draw = random.Random(7)
    with durable(tmp_path) as spool:
        for step in range(60):
            shape = tuple(draw.choice([1, 2, 3, 17, 60, 130]) for _ in range(draw.randint(0, 4)))
            array = field(shape, draw.choice(["float32", "int16", "complex128", "bool"]))
            spool.save(step, array)
            spool.flush()
            for _ in range(12):
                index = tuple(drawn(draw, length) for length in shape[: draw.randint(0, 4)])
                found = spool.load(step, region=index)
                assert np.array_equal(found, array[index]), (shape, index)


def drawn(draw, length):
    if draw.random() < 0.3:
        return draw.randrange(-length, length)
    ends = [draw.choice([None, draw.randint(-length - 1, length + 1)]) for _ in range(2)]
    return slice(*ends, draw.choice([None, 1, 2, -1, -3]))


def test_only_what_is_asked_for_is_read(tmp_path):
    """Another piece of the file may be damaged: it is not looked at."""
    u = field((64, 64, 64), "float32")
    with durable(tmp_path) as spool:
        spool.save(1, u)
        spool.flush()
    (file,) = Path(tmp_path).glob("frame-*")
    content = bytearray(file.read_bytes())
    content[4096 + 40 * 64 * 64 * 4] ^= 1
    file.write_bytes(content)
    with durable(tmp_path, "r") as spool:
        assert np.array_equal(spool.load(1, region=np.s_[:32]), u[:32])
        assert np.array_equal(spool.load(1, region=np.s_[48:, 0]), u[48:, 0])
        with pytest.raises(CorruptCheckpointError, match="65536 bytes at 655360"):
            spool.load(1, region=np.s_[40])


def test_runs_are_no_shorter_than_pieces_and_few():
    """What is read of an array of 1 GiB: the runs, and how many bytes they have."""
    shape = (64, 64, 1024, 64)
    cases = [
        (np.s_[:4], 1, 64 << 20),
        (np.s_[:], 1, 1 << 30),
        (np.s_[3, 5], 1, 1 << 18),
        (np.s_[:, 5], 64, 64 << 18),
        (np.s_[:, 5, 7], 64, 64 << 18),
        (np.s_[2:4, :, :512], 128, 128 << 17),
        (np.s_[..., 0], 1, 1 << 30),
    ]
    for index, count, total in cases:
        box = _partial.box_of(shape, index, "load()")
        parts = box.parts(box.contiguous(4), 4)
        assert (len(parts), sum(end - start for start, end in parts)) == (count, total), index


def test_a_look_is_no_restore(tmp_path):
    with durable(tmp_path, learn=False) as spool:
        spool.save(1, field())
        spool.flush()
        spool.load(1, region=np.s_[0])
        assert spool.stats().restores == 0


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        (("w",), {}, "nothing was saved under this name, but 'u'"),
        (("unspool.tree",), {}, "nothing was saved under this name"),
        (("model",), {"region": np.s_[0]}, "no array was saved under this name"),
        ((), {"region": np.s_[0]}, "name the array"),
        (("u",), {"region": np.s_[40]}, "40 is no index of an axis of 40"),
        (("u",), {"region": np.s_[0, 0, 0, 0]}, r"the array has the shape \(40, 30, 70\)"),
        (("u",), {"region": np.s_[..., ...]}, "the array has the shape"),
        (("u",), {"region": [1, 2]}, "is no index of an axis"),
        (("u",), {"region": True}, "is no index of an axis"),
        (("u",), {"region": np.s_[::0]}, "slice step cannot be zero"),
        (("u",), {"region": np.s_[0, None]}, "is no index of an axis"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, names, options, text):
    with durable(tmp_path) as spool:
        spool.save(3, u=field(), model={"w": field((3,))})
        with pytest.raises(OptionError, match=text):
            spool.load(3, *names, **options)


def test_a_version_that_is_not_there(tmp_path):
    with durable(tmp_path) as spool, pytest.raises(UnknownVersionError):
        spool.load(9, "u")


def test_arrays_of_other_libraries(tmp_path):
    torch = pytest.importorskip("torch")
    with durable(tmp_path) as spool:
        u = torch.arange(60_000, dtype=torch.bfloat16).reshape(300, 200)
        spool.save(1, u=u, empty=torch.zeros(0, 3))
        spool.flush()
        found = spool.load(1, "u", region=np.s_[7, ::2], to="torch")
        assert found.dtype == torch.bfloat16 and torch.equal(found, u[7, ::2])
        assert spool.load(1, "empty", to="torch").shape == (0, 3)


def test_a_region_is_exported(tmp_path):
    u = field()
    with durable(tmp_path / "run") as spool:
        spool.save(3, u=u, v=u + 1)
    out = tmp_path / "u.npz"
    export = ["export", str(tmp_path / "run"), "3", "-o", str(out)]
    assert cli.main([*export, "--array", "u", "--region", "2:5, ..., -1"]) == 0
    with np.load(out) as found:
        assert list(found) == ["u"] and np.array_equal(found["u"], u[2:5, ..., -1])
    assert cli.main([*export, "--force", "--array", "w"]) != 0
    assert cli.main([*export, "--force", "--region", "3"]) != 0


@pytest.mark.parametrize("increments", [False, True])
def test_a_checkpointer_gives_some_of_what_it_saved(tmp_path, increments):
    u = field()
    with unspool.Checkpointer(tmp_path, every=1, increments=increments) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, u=u + step, model={"w": u[0], "n": 3}, t=0.5)
        assert np.array_equal(checkpoints.load(1, "u", region=np.s_[3, ..., 5]), u[3, ..., 5] + 1)
        found = checkpoints.load(None, "t", "model")
        assert found["t"] == 0.5 and found["model"]["n"] == 3
        assert np.array_equal(found["model"]["w"], u[0])
        with pytest.raises(OptionError, match="nothing was saved"):
            checkpoints.load(1, "v")
        with pytest.raises(OptionError, match="name the array"):
            checkpoints.load(1, region=np.s_[0])
        # Such a look is nothing that a run goes on from: this step comes after the last one.
        checkpoints.save(3, u=u)
