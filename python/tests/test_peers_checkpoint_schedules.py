"""Without checkpoint_schedules everything else works; what needs it says what to install.

The tests with the package are in `peers`.
"""

from helpers import python

HIDDEN = "import sys; sys.modules['checkpoint_schedules'] = None; "


def test_importing_the_package_imports_no_peer():
    done = python(
        "import sys, unspool, unspool.schedules, unspool.interop\n"
        "print(sorted({'checkpoint_schedules', 'pyrevolve', 'devito'} & set(sys.modules)))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_without_the_package_the_error_says_what_to_install():
    done = python(
        HIDDEN + "from unspool import interop, schedules\n"
        "try:\n"
        "    interop.as_checkpoint_schedule(schedules.Revolve(4, 2))\n"
        "except ImportError as error:\n"
        "    print(type(error).__name__, error)"
    )
    assert done.stdout.startswith("MissingLibraryError"), done.stderr
    assert "pip install checkpoint-schedules" in done.stdout


def test_without_the_package_lists_are_still_schedules():
    done = python(
        HIDDEN + "from unspool import schedules\n"
        "print(schedules.as_schedule([schedules.Reverse(0), schedules.End()]).steps)"
    )
    assert done.stdout.strip() == "1", done.stderr
