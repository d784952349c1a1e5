"""Build and check a release, and run the README with it in an empty environment: `make dist`.

The sdist and the wheel are left in `dist`. The wheel is built from the sdist, so that both are
complete. The build is not isolated: it uses the hatchling of the Makefile's environment, and needs
no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST, ENVIRONMENT = ROOT / "dist", ROOT / "build" / "dist-environment"
EXTRA = "command"  # extra that the commands of the README need


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command; raise an error if it fails."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, env=env)


def build() -> Path:
    """Build both archives, check their metadata for the package index, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    archives = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *archives)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def install(wheel: Path) -> Path:
    """Install the wheel into a new environment and return its Python."""
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    python = ENVIRONMENT / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}[{EXTRA}]")
    return python


if __name__ == "__main__":
    python = install(build())
    run(python, ROOT / "tools" / "readme.py", env=os.environ | {"PYTHONPATH": str(ROOT / "tests")})
    print(*sorted(path.relative_to(ROOT) for path in DIST.iterdir()), sep="\n")
