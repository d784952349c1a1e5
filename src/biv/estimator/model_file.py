"""A fitted model in one file: tensors and JSON (safetensors). Reading one runs none of its code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from biv._utils import typed_json
from biv._utils.atomic_files import write_atomically

FORMAT = "biv model 1"


def write(path: str | Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write tensors and JSON; until the file is complete, the one before it stays.

    Raises:
        TypeError: Something in `content` has no form in JSON.
    """
    from safetensors.torch import save

    text = json.dumps(content, allow_nan=False)
    # Copies, since tied weights are one tensor under two names.
    whole = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "content": text, "sha256": _digest(whole, text)}
    write_atomically(Path(path), save(whole, metadata=metadata))


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """Against accidents: who means harm can write another."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`write` was given.

    Raises:
        ValueError: The file is no model, is damaged, or is of another version.
        FileNotFoundError: It is not there.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file")
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
