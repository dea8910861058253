"""Run a command: turn its errors into two lines and exit code 2, and its interrupts into exit code 130."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from sql_agent.errors import ConfigError, SqlAgentError
from sql_agent.system.files import named_disk_errors
from sql_agent.system.messages import printable
from sql_agent.system.signals import INTERRUPTED, STOPPING, end_interrupted, say_interrupted, stopping_signals


def run_command(name: str, argv: Sequence[str] | None = None) -> int:
    """Import the command `name`, a module in cli/ with a main(argv), and run it as `exits_cleanly` does."""

    def main(argv: Sequence[str] | None) -> int:
        code: int = import_module(f"sql_agent.cli.{name}").main(argv)
        return code

    return exits_cleanly(main, argv)


def exits_cleanly(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main(argv)` and return its exit code.

    A SqlAgentError, a full disk or an unusable file is printed with a hint; the code is then 2. After Ctrl-C, SIGTERM
    or a closed terminal the process ends with exit code 130, and the function does not return.
    """
    if threading.current_thread() is threading.main_thread():
        for number in stopping_signals():
            signal.signal(number, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        with named_disk_errors():
            code = main(argv)
    except SqlAgentError as error:
        print_error(error)
        return 2
    except ImportError as error:
        if "socksio" not in str(error):
            raise
        print_error(
            ConfigError(
                "ALL_PROXY or another variable names a SOCKS proxy, and the package for it is not installed",
                hint="pip install 'httpx[socks]', or unset ALL_PROXY, HTTP_PROXY and HTTPS_PROXY",
            )
        )
        return 2
    except KeyboardInterrupt:
        end_interrupted(say_interrupted)
    if code == INTERRUPTED:
        end_interrupted()
    return code


def leave(code: int) -> NoReturn:
    """Run the exit handlers and end this process with `code`; it can no longer be interrupted.

    Python's own end would print a traceback for an interrupt, and threads of Arrow and torch can make C++ abort.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None where the caller closed it
                stream.flush()
    except OSError:  # the reader is gone
        code = code or 2
    finally:
        os._exit(code)


def print_error(error: SqlAgentError) -> None:
    """Print what was wrong and what to do next on stderr."""
    print(printable(f"error: {error.message}"), file=sys.stderr)
    if error.hint:
        print(printable(f"  next: {error.hint}"), file=sys.stderr)
