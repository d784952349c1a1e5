"""Run every block of the README with the biv that is installed in this environment.

`tools/dist.py` calls it in an environment that has the wheel and nothing of the clone; the blocks
are run in a temporary folder, by the helpers of the tests, which must be on the path.
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
        sys.exit(f"biv must come from the environment {sys.prefix}; got {package}")
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
