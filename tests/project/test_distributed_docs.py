"""The scripts of docs/distributed.md: their gradients are those of one large batch."""

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
single = nn.Linear(3, 1)
single.load_state_dict(model.module.state_dict())
biv.biv_loss(single(x), y, variance, epsilon=0.05).backward()
for actual, expected in zip(model.module.parameters(), single.parameters(), strict=True):
    torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-6, atol=1e-7)
assert dist.get_world_size() == 2
print("same", flush=True)
dist.destroy_process_group()
__import__("os")._exit(0)  # the interpreter may abort while the model holds the group
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


def test_the_costs_on_the_page_are_the_measured_ones():
    measured = (Path(__file__).parents[2] / "benchmarks/results/scale.md").read_text("utf-8")
    rows = {}
    for line in measured.splitlines():
        if line.startswith("|"):
            _, quantity, ratio, *_ = (cell.strip() for cell in line.split("|"))
            rows[quantity] = ratio.split(" ")[0]
    shown = [
        line.split("|")[2].split()[0]
        for line in PAGE.splitlines()
        if re.match(r"\| (rows|a step|mem)", line)
    ]
    assert shown == [rows[name] for name in rows if name.startswith(("rows", "a step", "memory"))]
    (rate,) = re.findall(r"learned from ([\d,]+) rows a second", measured)
    assert f"r was {rate} rows per second" in PAGE


def test_the_predicted_times_follow_from_their_equation():
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
def test_gradients_are_those_of_one_large_batch(name, tmp_path):
    if name == "accelerate":
        pytest.importorskip("accelerate")
    process = run(SCRIPTS[name] + CHECK, tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("same") == 2


@pytest.mark.slow
def test_a_local_loss_fails_the_check(tmp_path):
    """The check of the gradients can fail."""
    local = SCRIPTS["ddp"].replace(", process_group=dist.group.WORLD", "")
    process = run(local + CHECK, tmp_path)
    assert "Tensor-likes are not close" in process.stderr
