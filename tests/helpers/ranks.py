"""Code of one process of a group, for the tests of distributed losses."""

import copy
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import biv
from helpers.cases import CASES, batch

FEATURES, OUTPUTS = 3, 2


def scenarios(world):
    """Return {name: (number of rows of each rank, the whole batch)}."""
    uneven = [5, 9, 4][:world]
    one_empty = [0, 11, 6][:world]
    return {
        "uneven": (uneven, _whole(sum(uneven), seed=1)),
        "one rank without rows": (one_empty, _whole(sum(one_empty), seed=2)),
        "missing, ignored, masked and weighted": (
            uneven,
            _whole(sum(uneven), seed=3, missing=True),
        ),
        "a trusted label on the last rank": (uneven, _whole(sum(uneven), seed=4, trusted=True)),
        "no used element on the first rank": (
            uneven,
            _whole(sum(uneven), seed=5, ignored=uneven[0]),
        ),
        "no used element at all": (uneven, _whole(sum(uneven), seed=6, ignored=sum(uneven))),
        "far apart in scale": (uneven, _whole(sum(uneven), seed=7, scales=uneven[0])),
    }


def _whole(rows, seed, missing=False, trusted=False, ignored=0, scales=0):
    x = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed)).double()
    _, target, variance = batch(rows, OUTPUTS, seed=seed)
    mask = sample_weight = None
    if missing:
        target[1, 0], target[rows - 1, 1], variance[2, 1] = torch.nan, torch.nan, torch.inf
        mask, sample_weight = target > -1.5, variance.clamp(0.2, 1.0)
    if trusted:
        variance[rows - 1, 0] = 0.0
    variance[:ignored] = torch.inf
    variance[:scales] *= 1e-9
    return {
        "x": x,
        "target": target,
        "variance": variance,
        "mask": mask,
        "sample_weight": sample_weight,
    }


def part(whole, rows):
    """Return some rows of a batch, as the arguments of a loss."""
    return {name: None if tensor is None else tensor[rows] for name, tensor in whole.items()}


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(FEATURES, OUTPUTS).double()


def backward(model, loss, rows):
    rows = dict(rows)
    value = loss(model(rows.pop("x")), **rows)
    value.backward()
    return value.detach()


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def cases_for(name):
    """Return the losses that are finite in a scenario; IV is not at variance 0."""
    return [case for case in CASES if not ("trusted" in name and case.name == "iv")]


def on_one_rank(rank, world, folder):
    """Save the gradients of every loss in every scenario, averaged over ranks by DDP."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    results = {}
    for name, (sizes, whole) in scenarios(world).items():
        start = sum(sizes[:rank])
        local_rows = slice(start, start + sizes[rank])
        for case in cases_for(name):
            loss = case.build(process_group=dist.group.WORLD)
            results[name, case.name, "batch"] = _one_batch(loss, part(whole, local_rows))
            results[name, case.name, "window"] = _one_window(loss, part(whole, local_rows))
        results[name, "biv", "naive"] = _one_batch(biv.BIVLoss(), part(whole, local_rows))
    results["errors"] = _errors(rank, world)
    results["subgroup"] = _subgroup(rank, world)
    results["compiled"] = _compiled()
    torch.save(results, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def _one_batch(loss, rows):
    model = DistributedDataParallel(linear())
    return backward(model, loss, rows), gradients(model)


def _one_window(loss, rows):
    """Use micro-batches of three rows, and exchange gradients only at the last one."""
    model = DistributedDataParallel(linear())
    micro = [part(rows, k) for k in torch.arange(len(rows["x"])).split(3)]
    columns = {
        f"{name}s": None if rows[name] is None else [m[name] for m in micro]
        for name in ("target", "variance", "mask", "sample_weight")
    }
    whole = loss.window(**columns)
    total = torch.zeros((), dtype=torch.float64)
    with model.no_sync():
        for rows in micro[:-1]:
            total += backward(model, whole, rows)
    total += backward(model, whole, micro[-1])
    return total, gradients(model)


def _subgroup(rank, world):
    """Use a loss over the last two ranks; any other rank is not a member."""
    members = [world - 2, world - 1]
    group = dist.new_group(members)
    if rank not in members:
        try:
            biv.BIVLoss(process_group=group)
        except TypeError as error:
            return str(error)
    loss = biv.BIVLoss(process_group=group)
    assert copy.deepcopy(loss).process_group is group  # as when a model is copied
    pred, target, variance = batch(4, seed=rank)
    return loss(pred, target, variance)


def _compiled():
    loss = biv.BIVLoss(process_group=dist.group.WORLD)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    arguments = batch(4, seed=dist.get_rank())
    return compiled(*arguments), loss(*arguments)


def _errors(rank, world):
    """Return the error of each rank for several bad inputs of the last rank."""
    good = dict(zip(("pred", "target", "variance"), batch(4), strict=True))
    bad_rank = rank == world - 1

    def attempt(call, **arguments):
        try:
            return call(**arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"

    loss = biv.BIVLoss(process_group=dist.group.WORLD)
    messages = {}
    for name, bad in {
        "negative variance": {"variance": -torch.ones(4)},
        "string": {"variance": "1"},
        "shape": {"pred": torch.ones(5)},
    }.items():
        messages[name] = attempt(loss, **good | (bad if bad_rank else {}))
    y = [good["target"]]
    messages["window"] = attempt(
        loss.window, targets=y, variances=[torch.ones(5)] if bad_rank else [good["variance"]]
    )
    # All ranks detect this error, on the whole batch, and none may wait for another.
    few = biv.BIVLoss(biv.epsilon.MinimumBatchSize(4 * world + 1), process_group=dist.group.WORLD)
    messages["too few"] = attempt(few, **good)
    # Without validation no rank raises for another, and no rank waits either.
    for name, epsilon in {"fixed": 0.05, "policy": biv.epsilon.MinimumBatchSize(2)}.items():
        unchecked = biv.BIVLoss(epsilon, process_group=dist.group.WORLD, validate_args=False)
        messages[f"unchecked {name}"] = attempt(
            unchecked, **good | ({"pred": torch.ones(5)} if bad_rank else {})
        )
    wide = {name: torch.ones(4, 3 if bad_rank else 2) for name in good}
    per_output = biv.BIVLoss(process_group=dist.group.WORLD, per_output=True)
    messages["outputs"] = attempt(per_output, **wide)
    for name, epsilon in {"fixed": 0.05, "policy": biv.epsilon.MinimumBatchSize(2)}.items():
        unchecked = biv.BIVLoss(
            epsilon, process_group=dist.group.WORLD, per_output=True, validate_args=False
        )
        whole = {name: torch.ones(4, 2) for name in good}
        messages[f"unchecked {name} per output"] = attempt(
            unchecked, **whole | ({"pred": torch.ones(5)} if bad_rank else {})
        )
    messages["good"] = attempt(loss, **good)  # the group still works
    return messages
