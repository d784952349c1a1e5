"""The package as it is installed, and what its documents promise."""

import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import biv
from images import disc, encoded, write_folder

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

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
    found = biv
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_all_is_complete():
    assert sorted(biv.__all__) == biv.__all__
    assert all(hasattr(biv, name) for name in biv.__all__)


@pytest.mark.slow
def test_import_is_light():
    """No plotting, no tables, no scientific stack beyond what the core needs."""
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


def test_the_extra_all_has_every_other():
    requirements = metadata.requires("biv")
    extras = set(metadata.metadata("biv").get_all("Provides-Extra"))

    def of(extra):
        named = [r for r in requirements if re.search(rf"extra == ['\"]{extra}['\"]", r)]
        return {r.partition(";")[0].strip() for r in named}

    assert len(extras) > 1
    assert of("all") == set().union(*(of(extra) for extra in extras - {"all"}))


def test_torch_2_13_is_admitted():
    (torch,) = (r for r in metadata.requires("biv") if r.startswith("torch"))
    assert torch == "torch>=2.4"
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_every_python_block_of_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    rows = {f"{n}.png": (n % 7, 0.1 + n % 3) for n in range(20)}
    write_folder(tmp_path / "photos", {n: encoded(disc(3, shift=int(n[:-4]))) for n in rows})
    lines = [f"{name},{y},{err}\n" for name, (y, err) in rows.items()]
    (tmp_path / "photos.csv").write_text("file,y,y_err\n" + "".join(lines))
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 6
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert "MSE to the true labels" in capsys.readouterr().out
    # The loop of the first block has learned something: the noise-corrected R² says so.
    assert namespace["r2"] > 0.9


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_documents_name_what_exists(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake (\w+)\b", text):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for path in re.findall(r"(?:src|tests|paper|benchmarks)/[\w/.-]+\.\w+", text):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"\bbiv\.([A-Za-z_.]+\w)\(", text):
        found = biv
        for part in name.split("."):
            found = getattr(found, part)
