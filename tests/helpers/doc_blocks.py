"""How the fenced blocks of a page are run.

A block is run as it stands. A command that would take too long, or would reach another machine, has
a stand-in of the same name (STANDINS), smaller arguments (`smaller`) or smaller data at the same
path (`doc_pages.clone`).
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from helpers import doc_pages
from helpers.sizes import size

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
pip() { command python -c 'from helpers import doc_blocks; doc_blocks.require_extras()' "$@"; }
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
    smoke = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", size("1", "2"), "--no-report"]
    return [*arguments, *smoke]


def run_blocks(blocks, name, folder, biv, *, apart=False):
    """Run the blocks of the page `name` in `folder`, which is the working directory.

    `biv` runs one command of the package: it is called with the arguments and returns the exit code
    and what was printed. Blocks of Python share a namespace unless they stand `apart`.
    """
    namespace = {"__name__": "__main__"}
    for block in blocks:
        if apart:
            namespace = {"__name__": "__main__"}
        if block.language == "sh":
            run_commands(block, folder, biv)
        elif block.language == "pycon":
            run_doctest(block, name, namespace)
        else:
            run_python(block, name, namespace)


def run_python(block, name, namespace):
    lines = "\n" * (block.line - 1)  # so that a traceback has the page's own lines
    exec(compile(lines + block.text, name, "exec"), namespace)


def run_commands(block, folder, biv):
    """Run each line by a shell, except for `biv` alone on its line."""
    if re.search(r"&$", block.text, flags=re.M):
        run_shell(block.text, block.line, folder)
        return
    for command in commands(block.text):
        first, *arguments = shlex.split(command, comments=True)
        if first == "biv":
            run_biv(arguments, block.line, biv)
        else:
            run_shell(command, block.line, folder)


def run_biv(arguments, line, biv):
    file = None
    if ">" in arguments:
        *arguments, _, file = arguments
    code, printed = biv(smaller(arguments))
    assert code == 0, f"line {line}: biv {' '.join(arguments)}\n{printed}"
    if file is not None:
        Path(file).write_text(printed, encoding="utf-8")


def run_in_this_process(arguments):
    """Run a command where the package is loaded already."""
    from biv.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        return main(arguments), printed.getvalue()


def run_installed_command(arguments):
    """Run the command that the package has installed in this environment."""
    script = Path(sys.executable).with_name("biv")
    done = subprocess.run([script, *arguments], stdout=subprocess.PIPE, text=True, timeout=600)
    return done.returncode, done.stdout


def run_shell(text, line, folder):
    # Stand-ins have no folder in their name.
    own = text.replace("8786", str(free_port())).replace(".venv/bin/", "")
    script = STANDINS + own
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300,
        env=os.environ | {
            "PATH": os.pathsep.join(path), "CLONE": str(doc_pages.ROOT), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )  # fmt: skip
    assert done.returncode == 0, f"line {line}: {done.stdout}\n{done.stderr}"


def run_doctest(block, name, namespace):
    example = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line - 1)
    said = []
    found = doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
    namespace.update(example.globs)
    assert found.attempted > 0
    assert found.failed == 0, "".join(said)


def commands(text):
    """The commands of a block without comments; one may go on on the next line."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


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
