"""Running of the fenced blocks of a page.

A block is run unchanged. A command that would take too long, or would reach another machine, has
a replacement of the same name (STANDINS), smaller arguments (`smaller`) or smaller data at the same
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

# Shell functions take precedence over commands of the same name.
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
    """Return arguments of `biv` that do the same with less data or training.

    Later options override earlier ones. A command that trains all artefacts trains one, because
    other pages train the others. Runs on faces, which are not shipped, are only listed.
    """
    command, words = arguments[0], set(arguments)
    if command == "compare":
        return [*arguments, "--folds", "2", "--jobs", "1"]
    if command not in ("reproduce", "claims") or "--list" in words:
        return arguments
    arguments = ["table1" if word == "all" else word for word in arguments]
    if "--stored" in words:
        return [*arguments, "--no-report"]
    if "utkface" in words:
        return [*arguments, "--list"]
    if command == "claims":
        numbers = [word for word in arguments if word.isdigit()]
        options = arguments[1:] if not numbers else arguments[1 + len(numbers) :]
        arguments = ["claims", "16" if not numbers else numbers[0], *options]
    smoke = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", size("1", "2"), "--no-report"]
    return [*arguments, *smoke]


def run_blocks(blocks, name, folder, biv, *, apart=False):
    """Run the blocks of the page `name` in `folder`, which is the working directory.

    `biv` runs one command of the package: it is called with the arguments, and returns the exit
    code and the printed text. Blocks of Python share a namespace unless `apart`.
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
    lines = "\n" * (block.line - 1)  # so that line numbers of a traceback are those of the page
    exec(compile(lines + block.text, name, "exec"), namespace)


def run_commands(block, folder, biv):
    """Run each line in a shell, except for lines that start with `biv`."""
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
    """Run a command in this process, in which the package is already loaded."""
    from biv.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        return main(arguments), printed.getvalue()


def run_installed_command(arguments):
    """Run the installed command of this environment."""
    script = Path(sys.executable).with_name("biv")
    done = subprocess.run([script, *arguments], stdout=subprocess.PIPE, text=True, timeout=600)
    return done.returncode, done.stdout


def run_shell(text, line, folder):
    # The replacements have no folder in their name.
    text_to_run = text.replace("8786", str(free_port())).replace(".venv/bin/", "")
    script = STANDINS + text_to_run
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
    output = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=output.append, clear_globs=False)
    namespace.update(example.globs)
    assert result.attempted > 0
    assert result.failed == 0, "".join(output)


def commands(text):
    """Return the commands of a block without comments; a command may continue on the next line."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


def free_port():
    """Return a port that is currently unused."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def require_extras():
    """Check that the extras of `pip install '.[a,b]'` exist; install nothing."""
    from importlib import metadata

    known = set(metadata.metadata("biv").get_all("Provides-Extra"))
    for argument in sys.argv[1:]:
        for names in re.findall(r"\[(.*)\]", argument):
            missing = set(names.split(",")) - known
            if missing:
                sys.exit(f"biv has no extra {', '.join(missing)}")
