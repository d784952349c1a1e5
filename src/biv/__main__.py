"""Run the `biv` command by `python -m biv`."""

import os
import sys

from biv._utils.torchrun import launched_by_torchrun
from biv.cli import main

if __name__ == "__main__":
    code = main()
    if launched_by_torchrun():
        # Threads of a process group may abort the interpreter while it shuts down. torchrun would
        # then report a failure, so exit without shutting the interpreter down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
