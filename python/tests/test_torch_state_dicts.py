"""States of models, optimizers and schedulers of PyTorch in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import unspool

torch = pytest.importorskip("torch")


def opened(path: Path) -> unspool.Checkpointer:
    return flat.checkpointer(path / "run", every=1, host_memory="16MiB", device="cpu", signals=())


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
