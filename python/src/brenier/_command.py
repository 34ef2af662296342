"""The command ``brenier``, from the same wheel."""

from __future__ import annotations

import signal
import sys

from . import _core


def main() -> None:
    """Runs the command with the arguments of this process and ends it with its exit code."""
    # Python's own handler would wait for the interpreter, which is busy until the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    code = _core.run_command(["brenier", *sys.argv[1:]])
    sys.exit(code)
