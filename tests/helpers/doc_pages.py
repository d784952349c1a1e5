"""The documents of the project as people read them, their blocks, and a place to run these in.

A block is run as it stands. What would take too long, or leaves this machine, has a stand-in of the
same name (STANDINS) or smaller data below the same path (`clone`).
"""

import gzip
import re
import shlex
import shutil
import socket
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from biv.paper import stacks
from helpers import parquet_files, pictures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = ("python", "pycon", "sh")
SHOWN = ("text", "{toctree}", "{include}", "{eval-rst}")

# Functions come before commands of the same name, in blocks and lines that a shell runs.
STANDINS = r"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
biv() { command biv "$@" --preset smoke --seeds 1 --no-report; }  # on a cluster
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
pytest() { (cd "$CLONE" && command pytest --collect-only -q "$@" > /dev/null); }
pip() { command python -c 'from helpers import doc_pages; doc_pages.require_extras()' "$@"; }
"""


def smaller(arguments):
    """What `biv` is given in the place of these arguments: the same, less of it.

    Later options override earlier ones. What trains all artefacts, which are trained page by page,
    trains one; of faces, which are not shipped, there is a list.
    """
    command, given = arguments[0], set(arguments)
    if command == "compare":
        return [*arguments, "--folds", "2", "--jobs", "1"]
    if command not in ("reproduce", "claims") or "--list" in given:
        return arguments
    arguments = ["table1" if word == "all" else word for word in arguments]
    if "--stored" in given:
        return [*arguments, "--no-report"]
    if "utkface" in given:
        return [*arguments, "--list"]
    if command == "claims":
        numbers = [word for word in arguments if word.isdigit()]
        options = arguments[1:] if not numbers else arguments[1 + len(numbers) :]
        arguments = ["claims", "16" if not numbers else numbers[0], *options]
    smoke = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", "2", "--no-report"]
    return [*arguments, *smoke]


class Here:
    """Workers of an experiment that are this very process, which has everything loaded."""

    count = 1

    def __init__(self):
        self.waiting = []

    def require_rows(self, _runs):
        pass

    def submit(self, runs):
        self.waiting.append(runs)

    def finished(self, _moved):
        while self.waiting:
            runs = self.waiting.pop(0)
            yield runs, stacks.attempt(runs)

    def close(self):
        pass


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


def commands(text):
    """The commands of a block without comments; one may go on on the next line."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


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
    pictures.write_folder(
        folder / "photos",
        {name: pictures.encoded(pictures.disc(3, shift=int(name[:-4]))) for name in rows},
    )
    lines = [f"{name},{y},{err}\n" for name, (y, err) in rows.items()]
    (folder / "photos.csv").write_text("file,y,y_err\n" + "".join(lines))
    parquet_files.write_folder(folder / "table")
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
