"""What a benchmark was measured on, and where its report goes."""

import argparse
import os
import platform
from pathlib import Path

import torch


def machine():
    """Processor, system and versions, in a line."""
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
    """The options that all benchmarks share."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--rounds", type=int, default=rounds, help=f"of all candidates (default: {rounds})"
    )
    options.add_argument("--out", type=Path, help="a file to write the report to as well")
    return options


def table(head, rows):
    """Lines of Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def publish(lines, path):
    """Print the lines as they come, and write them if there is a path."""
    kept = []
    for line in lines:
        print(line, flush=True)
        kept.append(line)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(kept) + "\n", encoding="utf-8")
