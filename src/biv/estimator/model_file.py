"""File of a fitted model: tensors and JSON (safetensors). Reading it runs no code of the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from biv._utils import typed_json
from biv._utils.atomic_files import write_atomically
from biv._utils.messages import wrong_path

FORMAT = "biv model 1"


def write(path: str | Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write tensors and JSON; an existing file stays until the new one is complete.

    Raises
    ------
    TypeError
        A value in `content` cannot be written as JSON.
    """
    from safetensors.torch import save

    text = json.dumps(content, allow_nan=False)
    # safetensors refuses tied weights, which share memory, so every tensor is copied.
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "content": text, "sha256": _digest(copies, text)}
    write_atomically(Path(path), save(copies, metadata=metadata))


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """Return a checksum. It finds accidents only: anyone can write a matching one."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the JSON that :func:`write` was given.

    Raises
    ------
    ValueError
        The file is not a model, is damaged, or has another format version.
    FileNotFoundError
        The file does not exist.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(wrong_path(path, "a file"))
    with typed_json.errors_name_file(path, "is not a model, or is damaged"):
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        typed_json.require_format(path, metadata.get("format"), FORMAT)
        text = metadata.get("content", "")
        if metadata.get("sha256") != _digest(tensors, text):
            raise ValueError("its checksum does not match")
        return tensors, typed_json.parse(path, text, dict[str, Any])
