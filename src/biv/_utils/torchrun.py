"""Whether `torchrun` has started this process, found out without loading PyTorch."""

from __future__ import annotations

import os


def launched_by_torchrun() -> bool:
    """Whether this process is one of ``torchrun``'s.

    The variable is the one that :func:`torch.distributed.is_torchelastic_launched` looks at.
    """
    return "TORCHELASTIC_RUN_ID" in os.environ
