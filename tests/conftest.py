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

# Two processes of two threads each fight over two cores; results do not depend on it.
torch.set_num_threads(1)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def data_dir():
    """The folder of real data, as users and continuous integration point to it."""
    folder = os.environ.get("BIV_DATA_DIR")
    if not folder:
        pytest.skip("BIV_DATA_DIR is not set: data that may not be shipped are not on hand")
    return Path(folder)


@pytest.fixture
def image_cache(tmp_path, monkeypatch):
    """The folder of the caches of images, this test's own."""
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"
