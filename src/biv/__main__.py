"""`python -m biv` is the `biv` command."""

import os
import sys

from biv._utils.torchrun import launched_by_torchrun
from biv.cli import main

if __name__ == "__main__":
    code = main()
    if launched_by_torchrun():
        # Threads of a process group may abort an interpreter that is being taken down, and torchrun
        # would take that for the outcome.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
