"""Signals before, while and after a Checkpointer is open, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import flat
import pytest
from unspool import errors

#: What each program begins with. `end` sends the signal, and says that the process has survived it.
HEAD = """
import faulthandler, gc, os, signal, sys, threading, time
import unspool

def opened(name, **options):
    options = {"every": None, "host_memory": "1MiB", "device": "cpu", **options}
    return unspool.Checkpointer(name, **options)

def elsewhere(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start(), thread.join()
    return found[0]

def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

def end(number=signal.SIGTERM):
    send(number)
    print("alive")

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        work()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

heard = []
def note(number, frame):
    heard.append(number)
"""


def run(program: str, folder: Path) -> tuple[int, str]:
    text = HEAD + textwrap.dedent(program)
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


#: Ways to open and close, after each of which a signal ends the process as if there had been none.
ORDERS = {
    "nested": "a, c = opened('a'), opened('c'); c.close(); a.close()",
    "in the order of opening": "a, c = opened('a'), opened('c'); a.close(); c.close()",
    "three, the middle one first": """
        a, b, c = opened('a'), opened('b'), opened('c'); b.close(); a.close(); c.close()""",
    "one after the other": "opened('a').close(); opened('a').close()",
    "closed in another thread": "elsewhere(opened('a').close)",
    "opened in another thread": "elsewhere(lambda: opened('a')).close()",
    "opened and closed elsewhere": "elsewhere(lambda: opened('a').close())",
    "two, one closed elsewhere": "a, c = opened('a'), opened('c'); elsewhere(a.close); c.close()",
    "two, both closed elsewhere": """
        a, c = opened('a'), opened('c'); elsewhere(a.close); elsewhere(c.close)""",
    "opened again after a close elsewhere": """
        elsewhere(opened('a').close); opened('a').close()""",
    "opened elsewhere after a close elsewhere": """
        elsewhere(opened('a').close); elsewhere(lambda: opened('a').close())""",
    "dropped": "a = opened('a'); del a; gc.collect()",
    "dropped in another thread": "held = [opened('a')]; elsewhere(held.clear); gc.collect()",
    "refused": """
        a = opened('a')
        try: opened('a')
        except unspool.Error: pass
        a.close()""",
    "left by an exception": """
        try:
            with opened('a'): raise KeyError
        except KeyError: pass""",
    "given up": "a = opened('a'); a._give_up()",
    "a handler above that came and went": """
        a = opened('a'); old = signal.signal(signal.SIGTERM, note); a.close()
        signal.signal(signal.SIGTERM, old)""",
    "a handler above that went before": """
        a = opened('a'); old = signal.signal(signal.SIGTERM, note)
        signal.signal(signal.SIGTERM, old); a.close()""",
    "a handler above that calls ours": """
        a = opened('a'); old = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: old(*given)); a.close()""",
    "a handler between two, each of which calls the one below": """
        a = opened('a'); old = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: old(*given))
        c = opened('c'); a.close(); c.close()""",
    "a handler between two that went": """
        a = opened('a'); old = signal.signal(signal.SIGTERM, note)
        c = opened('c'); signal.signal(signal.SIGTERM, old); c.close(); a.close()""",
    "a handler of another thread's Checkpointer, chained": """
        a = opened('a'); old = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: old(*given)); elsewhere(a.close)
        opened('a').close()""",
}


#: What each order is followed by in a process of its own, whose end and output are compared.
AFTER = {
    "ended by it": ("", "end()", -signal.SIGTERM, ""),
    "ignored": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "end()", 0, "alive\n"),
    "an own handler, called once": (
        "signal.signal(signal.SIGTERM, lambda *given: heard.append('own'))",
        "heard.clear(); end(); print(heard)",
        0,
        "alive\n['own']\n",
    ),
    # That of a library in C, of which Python knows nothing.
    "a handler of the system": (
        """
        file = open("trace", "w+")
        faulthandler.register(signal.SIGTERM, file=file, all_threads=False)""",
        "end(); file.seek(0); print(file.read().count('most recent call first'))",
        0,
        "alive\n1\n",
    ),
}


@pytest.mark.parametrize(("before", "after", "code", "said"), AFTER.values(), ids=AFTER)
def test_after_the_last_close_a_signal_acts_as_before_the_first_opening(
    before: str, after: str, code: int, said: str, tmp_path: Path
) -> None:
    orders = {name: textwrap.dedent(text) for name, text in ORDERS.items()}
    program = f"""
def ordered(name, text):
    os.mkdir(name), os.chdir(name)
    os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT), 1)
    exec({textwrap.dedent(before)!r}, globals())
    exec(text, globals())
    exec({after!r}, globals())
    sys.stdout.flush()

for name, text in {orders!r}.items():
    print(name, end=": ", flush=True)
    child(lambda: ordered(name, text))
"""
    done, output = run(program, tmp_path)
    assert done == 0
    ends = dict(line.rsplit(": ", 1) for line in output.splitlines())
    assert ends == dict.fromkeys(ORDERS, str(code))
    assert {name: (tmp_path / name / "out").read_text() for name in ORDERS} == dict.fromkeys(
        ORDERS, said
    )


WHILE_OPEN = {
    "two hear of it": ("a, c = opened('a'), opened('c')", "a c"),
    "the other one hears of it": ("b, a = opened('b'), opened('a'); b.close()", "a"),
    "below a handler that calls ours": (
        """
        a = opened('a'); old = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: old(*given))
        b = opened('b'); b.close()""",
        "a",
    ),
    "above a handler that calls one of ours that is closed": (
        """
        b = opened('b'); old = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: old(*given))
        a = opened('a'); b.close()""",
        "a",
    ),
    "opened elsewhere beside one of the main thread": (
        "c = opened('c'); a = elsewhere(lambda: opened('a'))",
        "a c",
    ),
    "opened elsewhere after a close elsewhere": (
        "elsewhere(opened('a').close); a = elsewhere(lambda: opened('a'))",
        "a",
    ),
    "opened again after a close elsewhere": (
        "elsewhere(opened('a').close); a = opened('a')",
        "a",
    ),
}


@pytest.mark.parametrize(("order", "names"), WHILE_OPEN.values(), ids=WHILE_OPEN)
def test_while_one_is_open_a_signal_asks_it_to_stop(order: str, names: str, tmp_path: Path) -> None:
    program = textwrap.dedent(order) + "\nend()\n"
    for name in names.split():
        program += f"print({name}.due(1), {name}.stopping); {name}.close()\n"
    told = "True True\n" * len(names.split())
    assert run(program + "end()", tmp_path) == (-signal.SIGTERM, f"alive\n{told}")


def test_a_handler_of_the_system_is_called_while_one_is_open(tmp_path: Path) -> None:
    program = """
        file = open("trace", "w+")
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
        a = opened("a")
        end(signal.SIGUSR1)
        print(a.due(1))
        file.seek(0); print(file.read().count("most recent call first"))
    """
    assert run(program, tmp_path) == (0, "alive\nTrue\n1\n")


def test_a_forked_process_has_the_handlers_of_before(tmp_path: Path) -> None:
    program = """
        a = opened("a")
        child(end)
        elsewhere(lambda: child(end))
        end()
        print(a.due(1))
    """
    assert run(program, tmp_path) == (0, "-15\n-15\nalive\nTrue\n")


def test_a_signal_at_the_end_of_the_interpreter_acts_as_before(tmp_path: Path) -> None:
    program = """
        import atexit
        atexit.register(end)
        a = opened("a")
    """
    assert run(program, tmp_path) == (-signal.SIGTERM, "")


def test_a_signal_that_stops_a_process_stops_it_after_the_close(tmp_path: Path) -> None:
    program = """
        a = opened("a", stop=unspool.types.Stop(signals="SIGTSTP"))
        old = signal.getsignal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, lambda *given: old(*given))
        a.close()
        pid = os.fork()
        if pid == 0:
            # The system stops no process of a group that has no parent in its session.
            os.setpgid(0, 0)
            end(signal.SIGTSTP)
            os._exit(7)
        print(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]))
        os.kill(pid, signal.SIGCONT)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(program, tmp_path) == (0, "True\nalive\n7\n")


@pytest.mark.parametrize("given", ["SIGKILL", ("SIGSTOP",), 15, None, (15,), "TERM", ("SIG_DFL",)])
def test_signals_that_cannot_be_handled_are_refused_before_anything_is_made(
    given: Any, tmp_path: Path
) -> None:
    with pytest.raises(errors.OptionError, match="signals"):
        flat.checkpointer(tmp_path / "run", signals=given, host_memory="1MiB", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_checkpointer_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    program = """
        import numpy as np
        a = opened("a")
        a.save(3, u=np.ones(4))
        del a
        gc.collect()
        print(opened("a").latest())
    """
    assert run(program, tmp_path) == (0, "3\n")
