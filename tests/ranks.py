"""What one process of a group does in the tests of distributed losses."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import biv
from cases import CASES, batch

FEATURES, OUTPUTS = 3, 2


def scenarios(world):
    """Name -> (rows of each rank, the whole batch). Rows are uneven; one rank may have none."""
    uneven = [5, 9, 4][:world]
    one_empty = [0, 11, 6][:world]
    return {
        "uneven": (uneven, _whole(sum(uneven), seed=1)),
        "one rank without rows": (one_empty, _whole(sum(one_empty), seed=2)),
        "all that may be missing": (uneven, _whole(sum(uneven), seed=3, missing=True)),
        "a trusted label on the last rank": (uneven, _whole(sum(uneven), seed=4, trusted=True)),
        "nothing left on the first rank": (uneven, _whole(sum(uneven), seed=5, ignored=uneven[0])),
        "nothing left at all": (uneven, _whole(sum(uneven), seed=6, ignored=sum(uneven))),
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
    """Some rows of a batch, as the arguments of a loss."""
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
    """IV has no limit at variance 0."""
    return [case for case in CASES if not ("trusted" in name and case.name == "iv")]


def on_one_rank(rank, world, folder):
    """Gradients of every loss in every scenario, averaged over ranks by DDP; rank 0 writes them."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    found = {}
    for name, (sizes, whole) in scenarios(world).items():
        start = sum(sizes[:rank])
        mine = slice(start, start + sizes[rank])
        for case in cases_for(name):
            loss = case.build(process_group=dist.group.WORLD)
            found[name, case.name, "batch"] = _one_batch(loss, part(whole, mine))
            found[name, case.name, "window"] = _one_window(loss, part(whole, mine))
        found[name, "biv", "naive"] = _one_batch(biv.BIVLoss(), part(whole, mine))
    found["errors"] = _errors(rank, world)
    torch.save(found, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def _one_batch(loss, rows):
    model = DistributedDataParallel(linear())
    return backward(model, loss, rows), gradients(model)


def _one_window(loss, rows):
    """The same rows in micro-batches of three, gradients exchanged at the last one only."""
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


def _errors(rank, world):
    """What each rank is told when only the last one was given bad input, again and again."""
    loss = biv.BIVLoss(process_group=dist.group.WORLD)
    good = dict(zip(("pred", "target", "variance"), batch(4), strict=True))
    said = []
    for bad in ({"variance": -torch.ones(4)}, {"variance": "1"}, {"pred": torch.ones(5)}):
        try:
            loss(**good | (bad if rank == world - 1 else {}))
        except (TypeError, ValueError, RuntimeError) as error:
            said.append(f"{type(error).__name__}: {error}")
    # One that all ranks find for themselves, on the whole batch: none may be left waiting.
    few = biv.BIVLoss(biv.epsilon.MinimumBatchSize(4 * world + 1), process_group=dist.group.WORLD)
    try:
        few(**good)
    except ValueError as error:
        said.append(f"{type(error).__name__}: {error}")
    said.append(float(loss(**good)))  # the group still works
    return said
