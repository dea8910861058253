"""Turn errors raised on purpose into two lines and exit code 2, for all entry points."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from sql_agent.errors import SqlAgentError
from sql_agent.system.files import named_disk_errors
from sql_agent.system.imports import lasting_interrupts
from sql_agent.system.printable import printable
from sql_agent.system.signals import INTERRUPTED, STOPPING, end_interrupted, say_interrupted, stopping_signals


def run_command(name: str, argv: Sequence[str] | None = None) -> int:
    """Run the command `name`, a module in cli/ with a main(argv), as `exits_cleanly` does, its slow import included."""

    def main(argv: Sequence[str] | None) -> int:
        with lasting_interrupts():
            module = import_module(f"sql_agent.cli.{name}")
        code: int = module.main(argv)
        return code

    return exits_cleanly(main, argv)


def exits_cleanly(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main(argv)` and return its exit code.

    A SqlAgentError, a full disk or a file that cannot be used is printed with a hint and gives 2. After an interrupt by
    Ctrl-C, SIGTERM or a terminal that is closed it does not return: the process ends with exit code 130.
    """
    _open_closed_streams()
    if threading.current_thread() is threading.main_thread():
        for number in stopping_signals():
            signal.signal(number, signal.default_int_handler)  # which raises KeyboardInterrupt
    try:
        with named_disk_errors():
            code = main(argv)
    except SqlAgentError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:
        end_interrupted(say_interrupted)
    if code == INTERRUPTED:
        end_interrupted()
    return code


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, so that no file or socket gets their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest free number
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def leave(code: int) -> NoReturn:
    """End this process with `code`, once its handlers of the end have run; it can no longer be interrupted.

    Not by Python's own end: an interrupt that comes meanwhile prints a traceback, and threads of Arrow and torch can
    make C++ abort.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads it any more
        code = code or 2
    finally:
        os._exit(code)


def print_error(error: SqlAgentError) -> None:
    """Print what was wrong and what to do next on stderr."""
    print(printable(f"error: {error.message}"), file=sys.stderr)
    if error.hint:
        print(printable(f"  next: {error.hint}"), file=sys.stderr)
