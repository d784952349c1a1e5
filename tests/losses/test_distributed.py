"""One normaliser over ranks: real processes on gloo, against the one big batch in this process."""

import time

import pytest
import torch
import torch.multiprocessing as mp

import biv
from helpers.cases import CASES, batch
from helpers.ranks import backward, cases_for, gradients, linear, on_one_rank, scenarios

pytestmark = pytest.mark.slow

SECONDS = 240


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """What each rank found, for groups of two and three."""
    world, folder = request.param, tmp_path_factory.mktemp("ranks")
    context = mp.spawn(on_one_rank, (world, str(folder)), nprocs=world, join=False)
    try:
        deadline = time.monotonic() + SECONDS
        # Returns at every process that ends, True at the last; raises what a process raised.
        while not context.join(timeout=max(deadline - time.monotonic(), 0)):
            assert time.monotonic() < deadline, "ranks hang"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(world)]


def one_big_batch(case, whole):
    model = linear()
    return backward(model, case.build(), whole), gradients(model)


@pytest.mark.parametrize("scenario", scenarios(2))
@pytest.mark.parametrize("how", ["batch", "window"])
def test_gradients_are_those_of_the_one_big_batch(ranks, scenario, how):
    _, whole = scenarios(len(ranks))[scenario]
    for case in cases_for(scenario):
        value, gradient = one_big_batch(case, whole)
        scale = gradient.abs().max().clamp(min=1e-12)
        values = [found[scenario, case.name, how][0] for found in ranks]
        for found in ranks:  # DDP leaves the same gradient on every rank
            error = (found[scenario, case.name, how][1] - gradient).abs().max() / scale
            assert error < 1e-6, (case.name, error)
        mean = torch.stack(values).mean()
        torch.testing.assert_close(mean, value, rtol=1e-6, atol=1e-12, msg=case.name)


def test_the_mean_of_local_losses_is_something_else(ranks):
    """Why the normaliser has to be shared: the usual way misses the gradient by far."""
    scenario = "far apart in scale"
    biv_case = next(case for case in CASES if case.name == "biv")
    _, gradient = one_big_batch(biv_case, scenarios(len(ranks))[scenario][1])
    naive = ranks[0][scenario, "biv", "naive"][1]
    assert (naive - gradient).norm() / gradient.norm() > 0.1


def test_a_bad_rank_stops_all_of_them(ranks):
    *others, bad = (found["errors"] for found in ranks)
    assert bad["negative variance"].startswith("ValueError: variance must be non-negative")
    assert bad["string"].startswith("TypeError: variance must be a torch.Tensor; got '1'")
    assert bad["shape"].startswith("ValueError: pred must have the shape of target")
    assert bad["window"].startswith("ValueError: variance must have the shape of target")
    for rank, said in enumerate(others):
        for problem in ("negative variance", "string", "shape", "window"):
            assert said[problem].startswith("RuntimeError: biv: another rank")
            assert f"Rank {rank} stops too" in said[problem]
    for said in (*others, bad):
        assert "needs at least that many usable labels" in said["too few"]
        assert said["outputs"].startswith("ValueError: target must have the same last dimension")
        assert "got 2 on one and 3 on another" in said["outputs"]
        assert said["good"] > 0


def test_without_validation_a_bad_rank_leaves_no_one_waiting(ranks):
    *others, bad = (found["errors"] for found in ranks)
    kinds = ("fixed", "policy", "fixed per output", "policy per output")
    for problem in (f"unchecked {kind}" for kind in kinds):
        assert bad[problem].startswith("ValueError: pred must have the shape")
        assert all(said[problem].isnan() for said in others)


def test_a_group_of_some_ranks(ranks):
    *outside, first, second = (found["subgroup"] for found in ranks)
    assert all(
        "does not belong to" in said or "process_group must be None" in said for said in outside
    )
    members = (len(ranks) - 2, len(ranks) - 1)
    whole = [
        torch.cat(parts) for parts in zip(*(batch(4, seed=rank) for rank in members), strict=True)
    ]
    torch.testing.assert_close((first + second) / 2, biv.biv_loss(*whole), rtol=1e-12, atol=0)


def test_compiles_with_a_group(ranks):
    for found in ranks:
        compiled, eager = found["compiled"]
        torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=0)


def test_a_local_loss_needs_no_group():
    assert biv.BIVLoss().process_group is None
