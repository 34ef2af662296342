"""``python -m brenier``: the command."""

from ._command import main

main()
