"""`unspool.Checkpointer` with arrays of JAX over several processes."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import errors

from rank_processes import Pipes, finish, start

if importlib.util.find_spec("jax") is None:
    pytest.skip("there is no JAX", allow_module_level=True)

#: The devices of all processes together.
DEVICES = 4


def joined(ranks: Any, port: int) -> Any:
    """JAX in a process of a job; it was not there before."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES // ranks.size}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if ranks.size > 1:
        jax.distributed.initialize(f"localhost:{port}", ranks.size, ranks.rank)
    assert len(jax.devices()) == DEVICES
    return jax


def fields(jax: Any, scale: float, turned: bool) -> dict[str, Any]:
    """Arrays with other pieces, or other replicas of them, where they are `turned`."""
    spec = jax.sharding.PartitionSpec
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    of = {"both": ("a", "b"), "one": ("a", None), "other": (None, "b"), "all": (None, None)}
    whole = np.arange(48, dtype=np.float32).reshape(4, 12) * scale
    return {
        name: jax.make_array_from_callback(
            whole.shape,
            jax.sharding.NamedSharding(mesh, spec(*(axes[::-1] if turned else axes))),
            lambda index: whole[index],
        )
        for name, axes in of.items()
    }


def same(found: Any, expected: Any) -> None:
    for name, one in expected.items():
        assert found[name].sharding == one.sharding, name
        for mine, other in zip(found[name].addressable_shards, one.addressable_shards, strict=True):
            assert np.array_equal(mine.data, other.data), name


def work(ranks: Pipes, path: Path, port: int, step: int) -> None:
    jax = joined(ranks, port)
    given = ranks if ranks.size > 1 else None
    options = {"host_memory": "8MiB", "device": "cpu", "timeout": 60.0}
    with unspool.Checkpointer(path, ranks=given, **options) as checkpoints:
        if step > 1:
            for turned in (False, True):
                like = {"params": fields(jax, 0.0, turned)}
                found = checkpoints.load(like=like)
                same(found["params"], fields(jax, float(step - 1), turned))
                assert found["step"] == step - 1
            whole = np.arange(48, dtype=np.float32).reshape(4, 12) * (step - 1)
            assert np.array_equal(checkpoints.load(step - 1, "params/both"), whole)
            if ranks.size > 1:
                with pytest.raises(errors.ArrayError, match="cannot be written in place"):
                    checkpoints.restore(step - 1, params=fields(jax, 0.0, False))
        checkpoints.save(step, params=fields(jax, float(step), False), step=step)
        if ranks.size > 1:
            found = checkpoints.load(step, like={"params": fields(jax, 0.0, False)})
            same(found["params"], fields(jax, float(step), False))
    os._exit(0)


def test_other_numbers_of_processes_go_on_with_arrays_of_jax(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # JAX may have begun in this process, and what is forked from it cannot join a job.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for step, size in enumerate((2, 1), 1):
        given = [str(tmp_path / "run"), str(port + step), str(step), str(size)]
        call = [sys.executable, __file__, *given]
        assert subprocess.run(call, env=environment, timeout=240).returncode == 0


def main(path: str, port: str, step: str, size: str) -> int:
    """A job of `size` processes; 0 when all have ended well."""
    job = start(int(size), work, Path(path), int(port), int(step))
    return int(any(finish(job)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
