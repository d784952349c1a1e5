"""Description of the machine, options and output that all benchmarks share."""

import argparse
import os
import platform
from pathlib import Path

import torch


def machine():
    """Return processor, system and versions as one line."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}; "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"
    )


def parser(description, *, rounds):
    """Return a parser with the options that all benchmarks share."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--rounds", type=int, default=rounds, help=f"number of rounds (default: {rounds})"
    )
    options.add_argument("--out", type=Path, help="file that the report is also written to")
    return options


def table(head, rows):
    """Yield the lines of a Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def publish(lines, path):
    """Print lines as they arrive, and write all of them to a file if there is a path."""
    printed = []
    for line in lines:
        print(line, flush=True)
        printed.append(line)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(printed) + "\n", encoding="utf-8")
