"""One normaliser over ranks: real processes on gloo, against the one big batch in this process."""

import pytest
import torch
import torch.multiprocessing as mp

import biv
from cases import CASES
from ranks import backward, cases_for, gradients, linear, on_one_rank, scenarios

pytestmark = pytest.mark.slow

SECONDS = 180


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """What each rank found, for groups of two and three."""
    world, folder = request.param, tmp_path_factory.mktemp("ranks")
    context = mp.spawn(on_one_rank, (world, str(folder)), nprocs=world, join=False)
    try:
        # join returns at the first process that ends; it raises what a process raised.
        while not context.join(timeout=SECONDS):
            assert any(process.is_alive() for process in context.processes), "ranks hang"
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
    assert bad[0].startswith("ValueError: variance must be non-negative")
    assert bad[1].startswith("TypeError: variance must be a torch.Tensor; found '1'")
    assert bad[2].startswith("ValueError: pred must have the shape of target")
    for rank, said in enumerate(others):
        for message in said[:3]:
            assert message.startswith("RuntimeError: biv: another rank")
            assert f"rank {rank}," in message
    for said in (*others, bad):
        assert "needs at least as many usable elements" in said[3]
        assert said[4] > 0


def test_a_local_loss_needs_no_group():
    assert biv.BIVLoss().process_group is None
