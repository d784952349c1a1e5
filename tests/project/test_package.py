"""The installed package: public names, imports, version, typing and extras."""

import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import biv

ROOT = Path(__file__).parents[2]

CONTRACT = [
    "inverse_variance_weights",
    "cutoff_weights",
    "effective_batch_size",
    "epsilon_for_batch_size",
    "l2_loss",
    "iv_loss",
    "biv_loss",
    "cutoff_loss",
    "L2Loss",
    "IVLoss",
    "BIVLoss",
    "CutoffLoss",
    "noise.Uniform",
    "noise.BinaryUniform",
    "noise.Gamma",
    "noise.corrupt",
    "noise.disturb",
    "metrics.noise_corrected_mse",
    "epsilon.Relative",
    "datasets.load_amyloid",
    "datasets.load_bike",
    "datasets.load_bike_2011",
    "datasets.load_utkface",
    "datasets.read_table",
]


@pytest.mark.parametrize("name", CONTRACT)
def test_public_names(name):
    value = biv
    for part in name.split("."):
        value = getattr(value, part)
    assert callable(value)


def test_all_is_complete():
    assert sorted(biv.__all__) == biv.__all__
    assert all(hasattr(biv, name) for name in biv.__all__)


@pytest.mark.slow
def test_import_is_light():
    """Importing biv imports no package for plots, tables or tests."""
    code = (
        "import sys; import torch; before = set(sys.modules); import biv;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "pandas", "scipy", "sklearn", "hypothesis", "pytest"}
    assert not heavy & set(run.stdout.split())


def test_version_and_typing():
    assert metadata.version("biv") == biv.__version__
    assert (resources.files("biv") / "py.typed").is_file()


def test_the_extra_all_has_the_requirements_of_all_others():
    requirements = metadata.requires("biv")
    extras = set(metadata.metadata("biv").get_all("Provides-Extra"))

    def requirements_of(extra):
        named = [r for r in requirements if re.search(rf"extra == ['\"]{extra}['\"]", r)]
        return {r.partition(";")[0].strip() for r in named}

    assert len(extras) > 1
    others = (requirements_of(extra) for extra in extras - {"all"})
    assert requirements_of("all") == set().union(*others)


def test_torch_2_13_is_allowed():
    (torch,) = (r for r in metadata.requires("biv") if r.startswith("torch"))
    assert torch == "torch>=2.4"
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()
