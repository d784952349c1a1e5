"""Run every block of the README with the biv that is installed in this environment.

`tools/dist.py` runs this script in an environment with the wheel and without the clone. The blocks
run in a temporary folder. The helpers of the tests must be on the Python path.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import biv
from helpers import doc_blocks, doc_pages

if __name__ == "__main__":
    package = Path(biv.__file__).resolve()
    if not package.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"biv must be installed in the environment {sys.prefix}; got {package}")
    readme = doc_pages.ROOT / "README.md"
    blocks = [block for block in doc_pages.blocks(readme) if block.language in doc_pages.RUN]
    with tempfile.TemporaryDirectory() as name:
        folder = doc_pages.clone(Path(name))
        os.chdir(folder)
        os.environ["BIV_CACHE_DIR"] = str(folder / "cache")
        doc_blocks.run_blocks(
            blocks, "README.md", folder, doc_blocks.run_installed_command, apart=True
        )
        os.chdir(doc_pages.ROOT)
    print(f"{len(blocks)} blocks of the README run with biv {biv.__version__} from {package}")
