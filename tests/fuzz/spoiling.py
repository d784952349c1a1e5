"""Functions that damage or forge a file, and the laws of a command that reads it."""

import copy
import json
import shutil

import numpy as np

from biv.estimator import model_file
from fuzz.laws import contents_below, files_below, one_of, require_clear

VALUES = (
    None, True, -1, 0, 0.5, 1e308, -1e308, 2**31, 2**70, 10**400, "", "x", "x" * 200_000, [], {},
    [[]], [None] * 3, {"a": 1}, float("nan"), float("inf"), "\0", "<script>alert(1)</script>",
    "../../escaped", list(range(1000)),
)  # fmt: skip
SAME_KEY = "\0again"  # a suffix of keys that is not written, so that a key can occur twice


def check(outcome, source, out, before, result):
    """Check the laws of a command that reads one folder and writes one file to another."""
    require_clear(outcome, source)
    assert contents_below(source) == before, "the source has changed"
    files = files_below(out)
    expected = {result.name} if outcome.code == 0 else set()
    assert files == expected, f"files {files} instead of {expected}, exit code {outcome.code}"
    if outcome.code == 0 and result.suffix == ".html":
        text = result.read_text(encoding="utf-8")
        assert text.endswith("</html>\n"), "the page has no end"
        assert "<script>alert" not in text, "a text became a script"


def dumps(content):
    """Return JSON in which keys may occur twice."""
    return json.dumps(content).replace(json.dumps(SAME_KEY)[1:-1], "")


def write_json(path, content):
    """Write content to a file by :func:`dumps`."""
    path.write_text(dumps(content), encoding="utf-8")


def _value(rng):
    """Return a copy of an odd value; a copy, because it may be changed later."""
    return copy.deepcopy(one_of(rng, VALUES))


def changed(rng, content):
    """Return content with some values removed, replaced or resized."""
    content = copy.deepcopy(content)
    for _ in range(int(one_of(rng, [1, 1, 1, 3]))):
        if not isinstance(content, (dict, list)) or not content:
            break
        inside = content
        while True:
            key = one_of(rng, list(inside) if isinstance(inside, dict) else range(len(inside)))
            deeper = inside[key]
            if not isinstance(deeper, (dict, list)) or not deeper or rng.random() < 0.25:
                break
            inside = deeper
        change = one_of(rng, ["remove"] + ["value"] * 3 + ["length", "deep", "add", "twice"])
        if change == "remove":
            del inside[key]
        elif change == "length" and isinstance(deeper, list):
            inside[key] = deeper[: int(rng.integers(len(deeper) + 1))] + deeper
        elif change == "deep":
            nested = []
            for _ in range(int(one_of(rng, [50, 900]))):
                nested = [nested]
            inside[key] = nested
        elif change == "twice" and isinstance(inside, dict):
            inside[key + SAME_KEY] = _value(rng)
            if rng.random() < 0.5:
                inside[key] = inside.pop(key)  # the last of the two
        elif change == "add" and isinstance(inside, dict):
            inside["unknown"] = 1
        else:
            inside[key] = _value(rng)
    return _value(rng) if rng.random() < 0.03 else content


def spoil(rng, path, kind):
    """Change bytes of a file, or delete it if `kind` is "missing"."""
    if kind == "missing":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    change = one_of(rng, ["cut", "flip", "flip", "more", "empty", "zeros"])
    place = int(rng.integers(len(content)))
    if change == "cut":
        del content[place:]
    elif change == "flip":
        content[place] ^= 1 << int(rng.integers(8))
    elif change == "more":
        content += b"\0" * 1000
    elif change == "empty":
        content.clear()
    elif change == "zeros":
        content[place : place + 4000] = bytes(len(content[place : place + 4000]))
    path.write_bytes(content)


def write_forged_model(rng, good, path):
    """Write a model whose checksum is right and whose content is wrong."""
    tensors, content = model_file.read(good)
    kinds = [
        "swap",
        "shape",
        "empty",
        "large",
        "nan",
        "remove",
        "dtype",
        "huge",
        "header",
        "header",
    ]
    change = one_of(rng, ["content"] * 5 + kinds)
    name, other = one_of(rng, sorted(tensors)), one_of(rng, sorted(tensors))
    if change == "content":
        content = changed(rng, content)
        content = content if isinstance(content, dict) else {"content": content}
    elif change == "swap":
        tensors[name], tensors[other] = tensors[other], tensors[name]
    elif change == "shape":
        tensors[name] = tensors[name].repeat(2) if tensors[name].ndim == 1 else tensors[name][:1]
    elif change in ("empty", "large"):
        one = tensors[name].reshape(-1)
        tensors[name] = one[:0] if change == "empty" else one.repeat(1 + 10**6 // len(one))
    elif change == "nan":
        tensors[name] = tensors[name] * one_of(rng, [np.nan, np.inf])
    elif change == "remove":
        del tensors[name]
    elif change == "dtype":
        tensors[name] = tensors[name].double()
    elif change == "huge":
        tensors[name] = tensors[name] * 1e30
    try:
        model_file.write(path, tensors, content)
    except ValueError:  # NaN, which is not JSON
        shutil.copy(good, path)
    if change == "header":
        _change_header(rng, path)


def _change_header(rng, path):
    """Change the header of a safetensors file: positions, shapes and types of its tensors."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = dumps(changed(rng, json.loads(content[8 : 8 + length]))).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
