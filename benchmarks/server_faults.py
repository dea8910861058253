"""Do to a run's MariaDB server what happens to servers: python benchmarks/server_faults.py --model FOLDER [NAME …]

The run is that of `single_faults.py`, the server one of its own. Each fault must be said within 5 s. Those that are
undone after 8 s must not end the run, nor lose a rollout.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
from single_faults import Fault, Run, is_wanted, started, try_fatal, try_survived

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.processes import free_port  # noqa: E402

_PROGRAM = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
_READER = "reader"
_FOR_S = 8.0


class Server:
    """A MariaDB server of ours, with all its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}",
                   "--auth-root-authentication-method=normal"]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server, and return when it answers."""
        command = [_PROGRAM, "--no-defaults", f"--datadir={self.folder / 'data'}", f"--port={self.port}",
                   "--bind-address=127.0.0.1", f"--socket={self.folder / 'socket'}", "--user=root",
                   "--skip-name-resolve"]  # fmt: skip
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.execute("SELECT 1")
            except pymysql.Error:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return self.process

    def execute(self, sql: str) -> None:
        """Run a statement with all rights."""
        with (
            closing(pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)

    def load(self) -> str:
        """Load the sample; return the URL of a user who may only read it."""
        url = f"mysql+pymysql://root@127.0.0.1:{self.port}/medical"
        command = [sys.executable, "-m", "sql_agent", "data", "load", "--db", url, "--reader", _READER]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
        return printed.split("DATABASE_URL=")[1].strip()

    def send(self, number: int) -> None:
        """Send the server's process a signal."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.stop()


def survived(server: Server, password: str) -> list[Fault]:
    """Return what is done to `server`, whose reader has `password`, and undone some seconds later."""

    def fault(name: str, do: Callable[[], object], undo: Callable[[], object]) -> Fault:
        def act(run: Run) -> None:
            run.done_at = time.monotonic()
            do()
            time.sleep(_FOR_S)
            undo()

        return Fault(name, act, "does not answer")

    def set_password(to: str) -> None:
        server.execute(f"SET PASSWORD FOR '{_READER}'@'%' = PASSWORD('{to}')")
        server.execute(f"KILL USER {_READER}")  # because a session outlives its password

    stop, go_on = (partial(server.send, number) for number in (signal.SIGSTOP, signal.SIGCONT))
    return [
        fault("ended and started again", server.stop, server.start),
        fault("stopped by SIGSTOP", stop, go_on),
        fault("the user's password changed", partial(set_password, "another"), partial(set_password, password)),
    ]


def fatal(server: Server) -> list[Fault]:
    """Return what is done to `server` and stays so; the last one ends it."""

    def rename(run: Run) -> None:
        run.done_at = time.monotonic()
        server.execute("RENAME TABLE medical.drugs_info TO medical.away")
        run.wait_for_line("error:")
        server.execute("RENAME TABLE medical.away TO medical.drugs_info")  # for the next run

    def stop(run: Run) -> None:
        run.done_at = time.monotonic()
        server.stop()

    return [
        Fault("a table renamed", rename, "doesn't exist", code=2),
        Fault("ended for good", stop, "does not answer", code=2),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder; only its tokenizer is used")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words in the names of faults to try (default: all)")
    arguments = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        url = server.load()

        def run_in(name: str) -> Run:
            (Path(folder) / name).mkdir()
            return started(arguments.model.resolve(), Path(folder) / name, 1000, "database.path=", DATABASE_URL=url)

        undone = survived(server, urlsplit(url).password or "")
        if undone := [fault for fault in undone if is_wanted(fault, arguments.names)]:
            fine &= try_survived(undone, run_in("survived"))
        for fault in fatal(server):
            if is_wanted(fault, arguments.names):
                fine &= try_fatal(fault, run_in(fault.name.replace(" ", "-")))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
