"""`python -m biv` is the `biv` command."""

import sys

from biv.cli import main

if __name__ == "__main__":
    sys.exit(main())
