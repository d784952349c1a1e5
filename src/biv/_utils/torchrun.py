"""Detection of processes started by `torchrun`, without loading PyTorch."""

from __future__ import annotations

import os


def launched_by_torchrun() -> bool:
    """Return whether ``torchrun`` started this process.

    :func:`torch.distributed.is_torchelastic_launched` reads the same environment variable.
    """
    return "TORCHELASTIC_RUN_ID" in os.environ
