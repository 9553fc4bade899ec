"""The engine of a Dask cluster, whose workers migrate (`distributed`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client, WorkerPlugin
from distributed.comm import resolve_address
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.seat import CrewError, Order, leave, sit

__all__ = ["Cluster"]

#: Seconds within which the scheduler answers, and within which there is a worker.
PATIENCE = 20.0
#: Seconds from one question how many workers there are to the next.
EVERY = 2.0
#: What must be the same here and on the workers.
PACKAGES = ("unspool", "unspool-studies")


class Cluster:
    """The workers of a Dask cluster: those that come later too. Dask redoes what the dead had."""

    kind = "Dask worker"

    def __init__(self, address: str) -> None:
        """Connects.

        Args:
            address: of the scheduler, or its scheduler file, whose name ends with `.json`.

        Raises:
            MigrationError: nobody answers, there is no worker, or workers lack what they need.
        """
        try:
            self._client = Client(**_where(address), timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise MigrationError(
                f"--dask {address}: no Dask scheduler answers there ({error}); `dask scheduler` "
                "says its address when it starts"
            ) from error
        try:
            self._check(address)
        except BaseException:
            self._client.close()
            raise
        self._told = self._count = 0
        self._asked = self._seen = time.monotonic()

    def _check(self, address: str) -> None:
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise MigrationError(
                f"--dask {address}: the scheduler has no worker, after {PATIENCE:.0f} s: start "
                f"some with `dask worker {address} --nthreads 1`"
            ) from error
        found = self._client.get_versions(packages=PACKAGES)
        ours = found["client"]["packages"]
        parties = {"the scheduler": found["scheduler"], **found["workers"]}
        for name, theirs in parties.items():
            for package in PACKAGES:
                version = theirs["packages"].get(package)
                if version != ours[package]:
                    raise MigrationError(
                        f"--dask {address}: {name} has {package} {version or 'not at all'}, and "
                        f"here it is {ours[package]}: install the same wherever Dask runs"
                    )

    @contextmanager
    def hire(self, order: Order) -> Iterator[None]:
        """The workers of the cluster, for a job."""
        self._client.subscribe_topic(order.name, self._hear)
        self._pool = self._client.get_executor(pure=False)
        try:
            self._client.register_plugin(_Worker(order), order.name)
            yield
        finally:
            # What happens to a cluster that is gone does not matter any more.
            with suppress(Exception):
                self._pool.shutdown(wait=False)
                self._client.unregister_worker_plugin(order.name)

    def workers(self) -> int:
        """How many threads work, as of a moment ago.

        Raises:
            CrewError: there has been none for a while.
        """
        now = time.monotonic()
        if now - self._asked > EVERY or not self._count:
            self._asked, self._count = now, sum(self._client.nthreads().values())
        if self._count:
            self._seen = now
        elif now - self._seen > PATIENCE:
            raise CrewError(f"the Dask cluster has had no worker for {PATIENCE:.0f} s")
        return self._count

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Has a free worker call `task`."""
        future: Future[Any] = self._pool.submit(task, *arguments)
        return future

    def steps(self) -> int:
        """Steps that the workers have told of since the last call."""
        steps, self._told = self._told, 0
        return steps

    def close(self) -> None:
        """Disconnects. The cluster stays."""
        self._client.close()

    def _hear(self, event: tuple[float, int]) -> None:
        self._told += event[1]


def _where(address: str) -> dict[str, str]:
    """As options of a client, which would wait for a file that is not there."""
    if address.endswith(".json"):
        with open(address, encoding="utf-8"):
            return {"scheduler_file": address}
    resolve_address(address)
    return {"address": address}


class _Worker(WorkerPlugin):  # type: ignore[misc]
    """Makes every worker of a cluster, those too that come later, one of a job."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def setup(self, worker: Any) -> None:
        """A worker is there."""
        name = self._order.name

        def tell(steps: int) -> bool:
            worker.log_event(name, steps)
            return False

        # A thread of a worker is one of its cores; dask-cuda puts the GPU of a worker first.
        sit(self._order, 0, 1, tell)

    def teardown(self, worker: Any) -> None:
        """The job is over, or the worker is."""
        leave(self._order.name)
