"""The scripts of docs/distributed.md: what they say of the one big batch holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
SCRIPTS = dict(
    zip(("ddp", "accelerate"), re.findall(r"```python\n(.*?)```", PAGE, re.S), strict=True)
)

CHECK = """
whole = nn.Linear(3, 1)
whole.load_state_dict(model.module.state_dict())
biv.biv_loss(whole(x), y, variance, epsilon=0.05).backward()
for mine, one in zip(model.module.parameters(), whole.parameters(), strict=True):
    torch.testing.assert_close(mine.grad, one.grad, rtol=1e-6, atol=1e-7)
assert dist.get_world_size() == 2
print("same", flush=True)
dist.destroy_process_group()
__import__("os")._exit(0)  # a group that the model still holds may abort an interpreter that ends
"""


def run(script, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
                "127.0.0.1", "--nproc-per-node", "2"]  # fmt: skip
    return subprocess.run(
        [*torchrun, str(path)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_what_it_costs_is_what_was_measured():
    found = (Path(__file__).parents[2] / "benchmarks/results/scale.md").read_text("utf-8")
    rows = {}
    for line in found.splitlines():
        if line.startswith("|"):
            _, what, ratio, *_ = (cell.strip() for cell in line.split("|"))
            rows[what] = ratio.split(" ")[0]
    said = [
        line.split("|")[2].split()[0]
        for line in PAGE.splitlines()
        if re.match(r"\| (rows|a step|mem)", line)
    ]
    assert said == [rows[what] for what in rows if what.startswith(("rows", "a step", "memory"))]
    (rate,) = re.findall(r"learned from ([\d,]+) rows a second", found)
    assert f"r was {rate} rows a second" in PAGE


def test_what_is_predicted_follows_from_its_equation():
    numbers = {
        name: [float(cell.split()[0]) for cell in line.split("|")[2:-1]]
        for line in PAGE.splitlines()
        for name in ("processes", "exchange", "million")
        if line.startswith(f"| {name}") and "measured" not in line
    }
    n, rate, parameters, bandwidth, latency = 8192, 142_650, 17_409, 1.25e9, 30e-6
    for count, exchange, million in zip(*numbers.values(), strict=True):
        seconds = 2 * (count - 1) / count * 4 * parameters / bandwidth + 2 * (count - 1) * latency
        assert exchange == pytest.approx(1e3 * seconds, rel=0.05, abs=0.08)
        whole = n / rate * 7 / 6 + seconds
        assert million == pytest.approx(count * n / whole / 1e6, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_gradients_are_those_of_the_one_big_batch(name, tmp_path):
    if name == "accelerate":
        pytest.importorskip("accelerate")
    done = run(SCRIPTS[name] + CHECK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same") == 2


@pytest.mark.slow
def test_a_local_loss_is_seen_to_be_something_else(tmp_path):
    """That the check above can fail."""
    local = SCRIPTS["ddp"].replace(", process_group=dist.group.WORLD", "")
    done = run(local + CHECK, tmp_path)
    assert "Tensor-likes are not close" in done.stderr
