"""
A process that removes checkpoints and is killed meanwhile; started by test_removal.

For every line on standard input, which says how many seconds it has, it forks one that prunes the
run, and kills that then. Python is loaded once only.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from footplate.checkpoints import Retention
from footplate.spec import Keep
from footplate.store import RunPaths, Store

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")


def main() -> None:
    """Fork, kill and report, once a line."""
    for line in sys.stdin:
        begun, tell = os.pipe()
        remover = os.fork()
        if remover == 0:
            store = Store(sys.argv[1])
            os.write(tell, b".")
            Retention(store, RUN, attempt=1, keep=Keep(last=2)).prune()
            os._exit(0)
        os.close(tell)
        os.read(begun, 1)
        time.sleep(float(line))
        os.kill(remover, signal.SIGKILL)
        _, status = os.waitpid(remover, 0)
        os.close(begun)
        sys.stdout.write("killed\n" if os.WIFSIGNALED(status) else f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
