"""The scripts of docs/distributed.md: what they say of the one big batch holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "distributed.md").read_text(encoding="utf-8")
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
print("same")
dist.destroy_process_group()
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
