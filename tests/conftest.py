import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from helpers.cases import CASES
from helpers.sizes import size

settings.register_profile(
    "biv", deadline=None, derandomize=True, print_blob=True, max_examples=size(100, 1000)
)
settings.load_profile("biv")

# Several test processes with several threads each would compete for the cores. Results do not
# depend on the number of threads.
torch.set_num_threads(1)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def data_dir():
    """Folder of the real data, which BIV_DATA_DIR names."""
    folder = os.environ.get("BIV_DATA_DIR")
    if not folder:
        pytest.skip(
            "BIV_DATA_DIR is not set: it must name the folder of data that cannot be shipped"
        )
    return Path(folder)


@pytest.fixture
def image_cache(tmp_path, monkeypatch):
    """Folder of image caches, which only this test uses."""
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"
