"""Losses normalised over ranks: real gloo processes, compared with the whole batch in one."""

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
    """Return the results of each rank, for groups of two and three."""
    world, folder = request.param, tmp_path_factory.mktemp("ranks")
    context = mp.spawn(on_one_rank, (world, str(folder)), nprocs=world, join=False)
    try:
        deadline = time.monotonic() + SECONDS
        # `join` returns when a process ends, True for the last one, and raises its errors.
        while not context.join(timeout=max(deadline - time.monotonic(), 0)):
            assert time.monotonic() < deadline, "ranks hang"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(world)]


def whole_batch(case, whole):
    model = linear()
    return backward(model, case.build(), whole), gradients(model)


@pytest.mark.parametrize("scenario", scenarios(2))
@pytest.mark.parametrize("mode", ["batch", "window"])
def test_gradients_are_those_of_the_whole_batch(ranks, scenario, mode):
    _, whole = scenarios(len(ranks))[scenario]
    for case in cases_for(scenario):
        value, gradient = whole_batch(case, whole)
        scale = gradient.abs().max().clamp(min=1e-12)
        values = [results[scenario, case.name, mode][0] for results in ranks]
        for results in ranks:  # DDP leaves the same gradient on every rank
            error = (results[scenario, case.name, mode][1] - gradient).abs().max() / scale
            assert error < 1e-6, (case.name, error)
        mean = torch.stack(values).mean()
        torch.testing.assert_close(mean, value, rtol=1e-6, atol=1e-12, msg=case.name)


def test_the_mean_of_local_losses_differs(ranks):
    """This is why the normaliser is shared: the mean over ranks has a wrong gradient."""
    scenario = "far apart in scale"
    biv_case = next(case for case in CASES if case.name == "biv")
    _, gradient = whole_batch(biv_case, scenarios(len(ranks))[scenario][1])
    naive = ranks[0][scenario, "biv", "naive"][1]
    assert (naive - gradient).norm() / gradient.norm() > 0.1


def test_a_failed_rank_stops_all_ranks(ranks):
    *others, bad = (results["errors"] for results in ranks)
    assert bad["negative variance"].startswith("ValueError: variance must be non-negative")
    assert bad["string"].startswith("TypeError: variance must be a torch.Tensor; got '1'")
    assert bad["shape"].startswith("ValueError: pred must have the shape of target")
    assert bad["window"].startswith("ValueError: variance must have the shape of target")
    for rank, messages in enumerate(others):
        for problem in ("negative variance", "string", "shape", "window"):
            assert messages[problem].startswith("RuntimeError: biv: another rank")
            assert f"Rank {rank} stops too" in messages[problem]
    for messages in (*others, bad):
        assert "needs at least that many usable labels" in messages["too few"]
        assert messages["outputs"].startswith(
            "ValueError: target must have the same last dimension"
        )
        assert "got 2 on one and 3 on another" in messages["outputs"]
        assert messages["good"] > 0


def test_without_validation_no_rank_waits_for_a_failed_one(ranks):
    *others, bad = (results["errors"] for results in ranks)
    kinds = ("fixed", "policy", "fixed per output", "policy per output")
    for problem in (f"unchecked {kind}" for kind in kinds):
        assert bad[problem].startswith("ValueError: pred must have the shape")
        assert all(messages[problem].isnan() for messages in others)


def test_a_group_of_two_ranks(ranks):
    *outside, first, second = (results["subgroup"] for results in ranks)
    assert all(
        "does not belong to" in messages or "process_group must be None" in messages
        for messages in outside
    )
    members = (len(ranks) - 2, len(ranks) - 1)
    whole = [
        torch.cat(parts) for parts in zip(*(batch(4, seed=rank) for rank in members), strict=True)
    ]
    torch.testing.assert_close((first + second) / 2, biv.biv_loss(*whole), rtol=1e-12, atol=0)


def test_compiles_with_a_group(ranks):
    for results in ranks:
        compiled, eager = results["compiled"]
        torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=0)


def test_a_local_loss_needs_no_group():
    assert biv.BIVLoss().process_group is None
