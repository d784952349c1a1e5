"""Documents of the project, their fenced blocks, and a folder to run the blocks in."""

import gzip
import re
import shutil
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from helpers import parquet_files, pictures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = ("python", "pycon", "sh")
SHOWN = ("text", "{toctree}", "{include}", "{eval-rst}")


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int  # number of its first line, from 1


def documents():
    """Return the path of every page and document by its path in the repository."""
    paths = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "paper").glob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(paths)}


def blocks(path):
    """Return the fenced blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text[: match.start()].count("\n") + 2)
        for match in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, flags=re.M | re.S)
    ]


def clone(folder):
    """Create a user's working folder: the parts of a clone that blocks name, with few rows."""
    shutil.copytree(ROOT / "paper", folder / "paper")
    shutil.copytree(ROOT / "examples", folder / "examples")
    data = Path("src", "biv", "datasets", "data", "amyloid.csv.gz")
    (folder / data).parent.mkdir(parents=True)
    with gzip.open(ROOT / data) as whole:
        (folder / data).write_bytes(gzip.compress(b"".join(islice(whole, 401))))
    shutil.copy(folder / data, folder / "data.csv.gz")  # as the first command of most pages does
    rows = {f"{n}.png": (n % 7, 0.1 + n % 3) for n in range(20)}
    pictures.write_folder(
        folder / "photos",
        {name: pictures.encoded(pictures.disc(3, shift=int(name[:-4]))) for name in rows},
    )
    lines = [f"{name},{y},{err}\n" for name, (y, err) in rows.items()]
    (folder / "photos.csv").write_text("file,y,y_err\n" + "".join(lines))
    parquet_files.write_folder(folder / "table")
    return folder
