"""Calls of the package with the fields of their records beside the other options, for tests that
vary one of them."""

from typing import Any

import unspool
from unspool.advice import Costs, Failures, Waits
from unspool.types import Access, Auto, Copies, Resume, Stop

ACCESS = ("first", "stream", "lookahead")
STOP = ("limit", "signals", "on_error", "requeue")


def adjoint(*given: Any, **options: Any) -> Any:
    """`unspool.adjoint`; `every` is that of `resume`."""
    if "every" in options:
        options["resume"] = Resume(options["resume"], options.pop("every"))
    _gather(options, "access", Access, ACCESS)
    return unspool.adjoint(*given, **options)


def checkpointer(path: Any, **options: Any) -> unspool.Checkpointer:
    """`unspool.Checkpointer`; `remote_every` is the `every` of `Copies`."""
    if "mtbf" in options or "share" in options:
        options.pop("every", None)
        _gather(options, "every", Auto, ("mtbf", "share"))
    _gather(options, "stop", Stop, STOP)
    if "remote_every" in options:
        every = {"every": options.pop("remote_every")}
        options["copies"] = Copies(**every, **_taken(options, ("remote", "partner")))
    else:
        _gather(options, "copies", Copies, ("remote", "partner"))
    return unspool.Checkpointer(path, **options)


def advise(*given: Any, **options: Any) -> unspool.advice.Advice:
    """`unspool.advise`."""
    _gather(options, "failures", Failures, ("mtbf", "rank_mtbf", "healed"))
    _gather(options, "waits", Waits, ("blocking", "blocked", "restart"))
    _gather(options, "costs", Costs, ("endurance", "power", "prices"))
    return unspool.advise(*given, **options)


def _gather(options: dict[str, Any], name: str, record: Any, fields: tuple[str, ...]) -> None:
    if found := _taken(options, fields):
        options[name] = record(**found)


def _taken(options: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: options.pop(field) for field in fields if field in options}
