"""States of models, optimizers and schedulers of PyTorch in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import unspool

torch = pytest.importorskip("torch")


def opened(path: Path, **state: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "16MiB", "device": "cpu", "signals": ()}
    return flat.checkpointer(path / "run", **options, **state)


OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda of: torch.optim.AdamW(of, 1e-2, amsgrad=True),
    "sgd": lambda of: torch.optim.SGD(of, 1e-2, momentum=0.9),
    "adagrad": lambda of: torch.optim.Adagrad(of, 1e-2),
    "rmsprop": lambda of: torch.optim.RMSprop(of, 1e-2, momentum=0.5),
}


def one_cycle(of: Any) -> Any:
    """Changes the momentum too, where there is one."""
    moves = bool({"momentum", "betas"} & of.defaults.keys())
    rates = torch.optim.lr_scheduler
    return rates.OneCycleLR(of, 0.1, total_steps=100, cycle_momentum=moves)


SCHEDULERS: dict[str, Any] = {
    "one cycle": one_cycle,
    "milestones": lambda of: torch.optim.lr_scheduler.MultiStepLR(of, [3, 12]),
}


class Job:
    """A model that is trained, of which all state is in what is saved."""

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1)]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = optimizer(self.model.parameters())
        self.scheduler = scheduler(self.optimizer)
        self.random = torch.Generator().manual_seed(5)

    def run(self, steps: int) -> list[Any]:
        for _ in range(steps):
            x = torch.randn(32, 5, generator=self.random)
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()
            self.scheduler.step()
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "opt": self.optimizer.state_dict(),
            "sched": self.scheduler.state_dict(),
            "rng": self.random,
        }


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_job_goes_on_with_an_optimizer_that_has_no_state_yet(
    optimizer: Any, scheduler: Any, tmp_path: Path
) -> None:
    expected = Job(optimizer, scheduler).run(20)
    first = Job(optimizer, scheduler)
    first.run(10)
    with opened(tmp_path) as checkpoints:
        checkpoints.save(10, **first.state())
    second = Job(optimizer, scheduler)
    with opened(tmp_path) as checkpoints:
        state = second.state()
        if second.optimizer.state_dict()["state"]:
            assert checkpoints.restore(**state) == 10
        else:
            with pytest.warns(RuntimeWarning, match="load_state_dict"):
                assert checkpoints.restore(**state) == 10
        second.optimizer.load_state_dict(state["opt"])
        second.scheduler.load_state_dict(state["sched"])
    assert all(map(torch.equal, second.run(10), expected))


def test_a_state_that_is_there_is_filled_in_place_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    first = Job(OPTIMIZERS["adamw"], SCHEDULERS["milestones"])
    with opened(tmp_path) as checkpoints:
        first.run(2)
        checkpoints.save(2, **first.state())
        saved = [state["exp_avg"].clone() for state in first.optimizer.state.values()]
        first.run(2)
        checkpoints.flush()
        assert checkpoints.restore(opt=first.optimizer.state_dict()) == 2
    found = [state["exp_avg"] for state in first.optimizer.state.values()]
    assert all(map(torch.equal, found, saved)) and not recwarn.list


def test_a_state_is_loaded_as_the_module_gave_it(tmp_path: Path) -> None:
    model = Job(OPTIMIZERS["sgd"], SCHEDULERS["milestones"]).model
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, model=model.state_dict())
        checkpoints.flush()
        found = checkpoints.load(to="torch")["model"]
    assert type(found) is type(model.state_dict())
    assert found._metadata == model.state_dict()._metadata
    assert str(model.load_state_dict(found)) == "<All keys matched successfully>"


def test_types_that_pytorch_returns_come_back(spool: unspool.Spool) -> None:
    spool.save(1, {"most": torch.max(torch.eye(3), 1), "size": torch.Size([2, 3]), "n": 1})
    found = spool.load(1, to="torch")
    assert type(found["most"]) is torch.return_types.max
    assert torch.equal(found["most"].indices, torch.arange(3))
    assert type(found["size"]) is torch.Size and found["size"] == (2, 3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("at_opening", [True, False])
def test_a_job_goes_on_when_its_objects_are_given(
    optimizer: Any, scheduler: Any, at_opening: bool, tmp_path: Path, recwarn: Any
) -> None:
    expected = Job(optimizer, scheduler).run(20)
    for steps in (10, 20):
        job = Job(optimizer, scheduler)
        state = {"model": job.model, "optim": job.optimizer, "sched": job.scheduler}
        with opened(tmp_path, **(state if at_opening else {}), rng=job.random) as checkpoints:
            given = {} if at_opening else {**state, "rng": job.random}
            step = checkpoints.restore(**given) or 0
            assert step == steps - 10
            found = job.run(10)
            checkpoints.save(steps, **({} if at_opening else state))
    assert all(map(torch.equal, found, expected)) and not recwarn.list


def test_a_run_goes_back_to_before_its_optimizer_had_a_state(tmp_path: Path) -> None:
    job = Job(OPTIMIZERS["adamw"], SCHEDULERS["milestones"])
    expected = Job(OPTIMIZERS["adamw"], SCHEDULERS["milestones"]).run(5)
    state = {"model": job.model, "optim": job.optimizer, "sched": job.scheduler}
    with opened(tmp_path, **state, rng=job.random) as checkpoints:
        checkpoints.save(0)
        job.run(3)
        assert checkpoints.restore() == 0 and not job.optimizer.state_dict()["state"]
    assert all(map(torch.equal, job.run(5), expected))


def test_a_model_of_another_shape_is_refused_by_it_and_stays(tmp_path: Path) -> None:
    with opened(tmp_path, model=torch.nn.Linear(3, 2)) as checkpoints:
        checkpoints.save(1)
    other = torch.nn.Linear(4, 2)
    before = {name: one.clone() for name, one in other.state_dict().items()}
    with opened(tmp_path) as checkpoints, pytest.raises(RuntimeError, match="size mismatch"):
        checkpoints.restore(model=other)
    assert torch.equal(other.weight, before["weight"])


def test_a_scaler_and_the_generators_of_the_process_go_on(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=1)
    scaler.scale(torch.ones(1))
    state = scaler.state_dict()
    with opened(tmp_path, scaler=scaler, rng=True) as checkpoints:
        checkpoints.save(1)
        expected = torch.rand(5)
    other = torch.amp.GradScaler("cpu")
    with opened(tmp_path, scaler=other, rng=True) as checkpoints:
        assert checkpoints.restore() == 1
    assert other.state_dict() == state and torch.equal(torch.rand(5), expected)


def test_a_load_gives_the_libraries_that_were_saved(tmp_path: Path) -> None:
    import numpy as np

    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, u=torch.arange(3), v=np.ones(2), model=model, some=[torch.ones(1)])
        found = checkpoints.load()
        assert type(found["u"]) is torch.Tensor and type(found["v"]) is np.ndarray
        assert found["u"].dtype == torch.int64 and type(found["some"][0]) is torch.Tensor
        assert found["model"]["weight"].dtype == torch.bfloat16
        assert torch.equal(found["model"]["weight"], model.weight)
        assert type(checkpoints.load(to="torch")["v"]) is torch.Tensor
        checkpoints.save(2, u=torch.arange(3))
        assert type(checkpoints.load(2)["u"]) is torch.Tensor
        u = torch.zeros(3, dtype=torch.int64)
        assert checkpoints.restore(2, u=u) == 2 and u.tolist() == [0, 1, 2]
        checkpoints.save(3, v=np.ones(2))
        assert type(checkpoints.load(3)["v"]) is np.ndarray


def test_a_tensor_over_several_processes_comes_back_into_one(tmp_path: Path) -> None:
    tensor = pytest.importorskip("torch.distributed.tensor")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        mesh = tensor.init_device_mesh("cpu", (1,))
        one = tensor.DTensor.from_local(torch.ones(4), mesh, [tensor.Shard(0)])
        with opened(tmp_path) as checkpoints:
            checkpoints.save(1, model={"w": one})
            with pytest.raises(unspool.errors.ArrayError, match=r"like=\.\.\."):
                checkpoints.load(1)
            target = tensor.DTensor.from_local(torch.zeros(4), mesh, [tensor.Shard(0)])
            assert checkpoints.restore(1, model={"w": target}) == 1
            assert torch.equal(target.to_local(), torch.ones(4))
    finally:
        torch.distributed.destroy_process_group()
