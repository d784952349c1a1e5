"""The documents of the project as people read them, their blocks, and a place to run these in.

A block is run as it stands. What would take too long, or leaves this machine, has a stand-in of the
same name (STANDINS) or smaller data below the same path (`clone`).
"""

import gzip
import re
import shutil
import socket
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import images
import parquet

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RUN = ("python", "pycon", "sh")
SHOWN = ("text", "{toctree}", "{include}", "{eval-rst}")

# Functions come before commands of the same name. `reproduce` and `claims` train by the smoke
# preset on shipped data, later options overriding earlier ones; of faces, which are not shipped,
# they list.
STANDINS = r"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
biv() {
  local given=" $* "
  if [[ $given == *" --list "* || $given != *" "reproduce" "* && $given != *" "claims" "* ]]; then
    command biv "$@"
  elif [[ $given == *" --stored "* ]]; then
    command biv "$@" --no-report
  elif [[ $given == *" utkface "* ]]; then
    command biv "$@" --list
  elif [[ $given == *" --cluster "* ]]; then
    command biv "$@" --preset smoke --seeds 1 --no-report
  else
    command biv "$@" --dataset bike2011 --preset smoke --seeds 2 --jobs 1 --no-report
  fi
}
torchrun() {  # two processes will do, on this machine alone
  local given=("$@")
  [[ $1 == --nproc-per-node ]] && given[1]=2
  command torchrun --standalone --local-addr 127.0.0.1 "${given[@]}"
}
python() {
  local given=("$@")
  [[ $1 == examples/* ]] && given+=(--small)
  command python "${given[@]}"
}
make() { command make --dry-run --directory "$CLONE" "$@" > dry-run.txt; }
pip() { command python -c 'import pages; pages.require_extras()' "$@"; }
"""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int  # of its first line, from 1 on


def documents():
    """Every page and document, by its path in the repository."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "paper").glob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(found)}


def blocks(path):
    """The fenced blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text[: match.start()].count("\n") + 2)
        for match in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, flags=re.M | re.S)
    ]


def clone(folder):
    """What a user stands in: the parts of a clone that blocks name, with few rows of data."""
    shutil.copytree(ROOT / "paper", folder / "paper")
    shutil.copytree(ROOT / "examples", folder / "examples")
    data = Path("src", "biv", "datasets", "data", "amyloid.csv.gz")
    (folder / data).parent.mkdir(parents=True)
    with gzip.open(ROOT / data) as whole:
        (folder / data).write_bytes(gzip.compress(b"".join(islice(whole, 401))))
    shutil.copy(folder / data, folder / "data.csv.gz")  # as the first command of most pages would
    rows = {f"{n}.png": (n % 7, 0.1 + n % 3) for n in range(20)}
    images.write_folder(
        folder / "photos",
        {name: images.encoded(images.disc(3, shift=int(name[:-4]))) for name in rows},
    )
    lines = [f"{name},{y},{err}\n" for name, (y, err) in rows.items()]
    (folder / "photos.csv").write_text("file,y,y_err\n" + "".join(lines))
    parquet.write_folder(folder / "table")
    return folder


def free_port():
    """One that nobody listens at just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def require_extras():
    """`pip install '.[a,b]'`: that there are such extras, and nothing else."""
    from importlib import metadata

    known = set(metadata.metadata("biv").get_all("Provides-Extra"))
    for argument in sys.argv[1:]:
        for names in re.findall(r"\[(.*)\]", argument):
            missing = set(names.split(",")) - known
            if missing:
                sys.exit(f"biv has no extra {', '.join(missing)}")
