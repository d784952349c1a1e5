"""What the stacked engine costs beside ordinary loops and beside the machine: ratios in one run.

    .venv/bin/python benchmarks/training.py                    the paper's protocol on bike data
    .venv/bin/python benchmarks/training.py --rounds 3         a quick look
    .venv/bin/python benchmarks/training.py --out results.md   and write it down

The candidates take turns within each round, so that a busy machine slows them alike, and the
medians of the rounds' ratios are printed. All labels have noise and variances; every candidate
trains the paper's network with Adam on batches of 256.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

import biv
from biv.models import MLP
from biv.training import Member, Schedule, Stack, Triplets
from biv.training.numerics import numerical_settings
from machine import machine, parser, publish

FEATURES, TRAIN, TEST, BATCH = 19, 7_000, 3_379, 256
STEPS = TRAIN // BATCH  # an epoch, incomplete batch dropped
SEEDS, METHODS = 5, 8  # a stack of forty
WIDTHS = (FEATURES, 100, 50, 20, 10, 1)


def table(seed, train=TRAIN, test=TEST):
    """Noisy training rows and clean test rows: the shipped hours of Bike Sharing, drawn at will.

    As many as the paper has of the whole data set, so that no download is needed.
    """
    data = biv.datasets.load_bike_2011()
    features, labels = (
        biv.preprocessing.FeatureScaler.fit(data.x),
        biv.preprocessing.LabelScaler.fit(data.y),
    )
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(len(data), size=rows) for rows in (train, test)]
    (x, x_test), (y, y_test) = (
        [scaled[rows] for rows in drawn] for scaled in (features(data.x), labels.label(data.y))
    )
    variance = biv.noise.Gamma(1.0, mean=0.6).sample(train, rng)
    return Triplets(x, biv.noise.corrupt(y, variance, rng), variance), Triplets(x_test, y_test)


def members(seeds=SEEDS, methods=METHODS, **sizes):
    """The methods of each seed share its rows, as in the paper's table."""
    losses = [biv.BIVLoss(), biv.L2Loss(), biv.IVLoss(), *(biv.CutoffLoss(c) for c in (0.3, 0.6))]
    tables = [table(seed, **sizes) for seed in range(seeds)]
    return [
        Member(train, test, losses[method % len(losses)], seed=seed)
        for seed, (train, test) in enumerate(tables)
        for method in range(methods)
    ]


def stack(*, test_every, count=None, **sizes):
    """Forty members by default."""
    chosen = members(**sizes)[:count]
    return Stack(MLP(FEATURES), chosen, Schedule(drop_last=True, test_every=test_every))


# The baselines.


def network():
    """The paper's, as people write it."""
    layers = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def dataloader_loop(*, tested):
    """TensorDataset and DataLoader for both sets, torch.optim.Adam: steps, one at a time."""
    train, test = table(0)
    model, loss = network(), biv.BIVLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = DataLoader(
        TensorDataset(train.x, train.y, train.variance), BATCH, shuffle=True, drop_last=True
    )
    test_batches = DataLoader(TensorDataset(test.x, test.y), BATCH)
    while True:
        for x, y, variance in batches:
            model.train()
            optimizer.zero_grad()
            loss(model(x), y, variance).backward()
            optimizer.step()
            if tested:
                model.eval()
                total = 0.0
                with torch.no_grad():
                    for x_test, y_test in test_batches:
                        total += (model(x_test) - y_test).square().sum().item()
            yield


def plain_loop(*, tested):
    """The best ordinary loop: tensors on hand, fused Adam, constant weights, the test in one go."""
    train, test = table(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    weight = 1.0 / (train.variance + 0.05)
    while True:
        for rows in torch.randperm(TRAIN).split(BATCH)[:STEPS]:
            w = weight[rows]
            loss = (w * (model(train.x[rows]) - train.y[rows]).square()).sum() / w.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if tested:
                with torch.no_grad():
                    (model(test.x) - test.y).square().mean().item()
            yield


def seconds_a_step(loop, steps):
    """Of an ordinary loop."""
    start = time.perf_counter()
    for _ in range(steps):
        next(loop)
    return (time.perf_counter() - start) / steps


def seconds_a_member_step(engine, epochs=1):
    """Of the stacked engine."""
    start = time.perf_counter()
    for _ in range(epochs):
        engine.run_epoch()
    return (time.perf_counter() - start) / (epochs * STEPS * len(engine.members))


# The machine: the same batched products, nothing else.


def products(count, rows, *, backward):
    """(name, flops, call) of every batched product of `count` members on `rows` rows."""
    found = []
    for inputs, outputs in pairwise(WIDTHS):
        weight = torch.randn(count, outputs, inputs)
        first = inputs == FEATURES
        x = torch.randn(count, rows, inputs).transpose(1, 2) if first and backward else None
        x = torch.randn(count, inputs, rows) if x is None else x
        out, d_weight = torch.empty(count, outputs, rows), torch.empty(count, outputs, inputs)
        d_x = torch.empty(count, inputs, rows)
        flops = 2 * count * rows * inputs * outputs
        calls = {"forward": lambda w=weight, x=x, o=out: torch.bmm(w, x, out=o)}
        if backward:
            calls["weights"] = lambda x=x, o=out, d=d_weight: torch.bmm(o, x.transpose(1, 2), out=d)
        if backward and not first:
            calls["inputs"] = lambda w=weight, o=out, d=d_x: torch.bmm(w.transpose(1, 2), o, out=d)
        found += [(f"{inputs}→{outputs} {name}", flops, call) for name, call in calls.items()]
    return found


def product_seconds(count, rows, *, backward, repeats):
    """Flops of one pass of these products, and the seconds it takes."""
    flops = seconds = 0.0
    for _, work, call in products(count, rows, backward=backward):
        call()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        seconds += (time.perf_counter() - start) / repeats
        flops += work
    return flops, seconds


def machine_seconds_a_member_step():
    """Flops a member-step with its test, and what the products alone need for them."""
    count = METHODS  # what shares a test set, and so what a test product is made of
    train_flops, train = product_seconds(20, BATCH, backward=True, repeats=5)
    test_flops, test = product_seconds(count, 512, backward=False, repeats=10)
    scale = TEST / 512 / count
    return train_flops / 20 + test_flops * scale, train / 20 + test * scale


# Several processes, one a core.


def worker(barrier, results, threads, epochs, tested):
    """A stack of its own, started together with the others."""
    torch.set_num_threads(threads)
    engine = stack(test_every=1 if tested else None)
    with numerical_settings():
        engine.run_epoch()
        barrier.wait()
        start = time.perf_counter()
        for _ in range(epochs):
            engine.run_epoch()
        results.put(time.perf_counter() - start)


def seconds_with_all_cores(cores, *, tested, epochs):
    """A member-step's share of the time of `cores` processes."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(cores), context.Queue()
    arguments = (barrier, results, 1, epochs, tested)
    processes = [context.Process(target=worker, args=arguments) for _ in range(cores)]
    for process in processes:
        process.start()
    longest = max(results.get(timeout=600) for _ in processes)
    for process in processes:
        process.join()
    return longest / (epochs * STEPS * SEEDS * METHODS * cores)


# Where the time goes, how it grows, and what it needs.

PARTS = {
    "matrix products": "bmm baddbmm addmm_",
    "bias and activation": "copy_ clamp_min_ relu_ threshold_backward",
    "gather": "index_select index",
    "optimiser": "_fused_adam_ Optimizer.step#Adam.step _foreach_add_",
    "errors, losses and sums": "sum mean sub sub_ pow_ square_ mul mul_ add_",
}


def breakdown(engine):
    """The share of an epoch that each kind of work takes, as torch's profiler sees it."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        engine.run_epoch()
    events = recorded.key_averages()
    own = {event.key.removeprefix("aten::"): event.self_cpu_time_total for event in events}
    total = sum(own.values())
    shares = {part: sum(own.get(key, 0.0) for key in keys.split()) for part, keys in PARTS.items()}
    shares["views, Python and the rest"] = total - sum(shares.values())
    return {part: value / total for part, value in shares.items()}


def exponent(sizes, measure):
    """The slope of log(seconds) over log(size): 1 is linear."""
    logs = np.log([[size, measure(size)] for size in sizes])
    return np.polyfit(logs[:, 0], logs[:, 1], 1)[0]


def epoch_seconds(**arguments):
    """The best of three epochs."""
    engine = stack(**arguments)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        engine.run_epoch()
        times.append(time.perf_counter() - start)
    return min(times)


def exponents():
    """How the cost grows with members, epochs, training rows and test rows."""
    engine = stack(test_every=1, seeds=2)

    def epochs(count):
        start = time.perf_counter()
        for _ in range(count):
            engine.run_epoch()
        return time.perf_counter() - start

    few = {"seeds": 2}
    return {
        "members (10, 20, 40)": exponent(
            (10, 20, 40), lambda n: epoch_seconds(test_every=1, count=n)
        ),
        "epochs (1, 2, 4)": exponent((1, 2, 4), epochs),
        "training rows, untested (7,000, 14,000, 28,000)": exponent(
            (7_000, 14_000, 28_000), lambda n: epoch_seconds(test_every=None, train=n, **few)
        ),
        "test rows (3,379, 6,758, 13,516)": exponent(
            (3_379, 6_758, 13_516), lambda n: epoch_seconds(test_every=1, test=n, **few)
        ),
    }


def peak_memory(job):
    """Megabytes at most of a fresh process that does `job`; Linux alone says it."""
    code = f"import training; training.torch.set_num_threads(1); {job}; training.print_peak()"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    return float(run.stdout)


def print_peak():
    """Not the resource module's, which begins at what the parent process had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(int(kilobytes) / 1024)


def median_ratio(rounds, above, below):
    """Of two columns of the rounds."""
    return statistics.median(times[above] / times[below] for times in rounds)


def report(rounds_wanted):
    """Measure everything; yields lines of Markdown as they are known."""
    torch.set_num_threads(1)
    cores = os.cpu_count() or 1
    yield f"Machine: {machine()}.\n"
    loops = {
        "dataloader tested": (dataloader_loop(tested=True), 5),
        "dataloader": (dataloader_loop(tested=False), STEPS),
        "plain tested": (plain_loop(tested=True), STEPS),
        "plain": (plain_loop(tested=False), 3 * STEPS),
    }
    engines = {"tested": stack(test_every=1), "untested": stack(test_every=None)}
    rounds = []
    with numerical_settings():
        for engine in engines.values():
            engine.run_epoch()
        for loop, _ in loops.values():
            next(loop)
        for _ in range(rounds_wanted):
            times = {name: seconds_a_step(loop, steps) for name, (loop, steps) in loops.items()}
            for name, engine in engines.items():
                times[name] = seconds_a_member_step(engine)
            times["flops"], times["machine"] = machine_seconds_a_member_step()
            for tested, name in ((True, "cores tested"), (False, "cores")):
                times[name] = seconds_with_all_cores(
                    cores, tested=tested, epochs=1 if tested else 4
                )
            rounds.append(times)
        shares = breakdown(engines["tested"])
        growth = exponents()
    tested, alone = "test set scored after every step", "training alone"
    usual, best = "DataLoader loop", "best plain loop"
    rows = [
        (f"{tested}, one core", usual, "dataloader tested", "tested", "12×"),
        (f"{tested}, {cores} processes", usual, "dataloader tested", "cores tested", "24×"),
        (f"{tested}, one core", best, "plain tested", "tested", ""),
        (f"{tested}, {cores} processes", best, "plain tested", "cores tested", ""),
        (f"{alone}, one core", usual, "dataloader", "untested", ""),
        (f"{alone}, {cores} processes", usual, "dataloader", "cores", "12×"),
        (f"{alone}, one core", best, "plain", "untested", ""),
        (f"{alone}, {cores} processes", best, "plain", "cores", "4×"),
    ]
    yield (
        f"Bike Sharing's shape: {TRAIN:,} training rows, {TEST:,} test rows, batches of {BATCH}, "
        f"a stack of {SEEDS * METHODS} (medians of {rounds_wanted} rounds).\n"
    )
    yield (
        "The loops run in one process with one thread. The DataLoader loop is written as people "
        "usually write it, with a DataLoader for the test set too; the best plain loop indexes "
        "tensors, has a fused Adam and scores the test set in one go.\n"
    )
    yield "| what | beside | times as fast | wanted |\n|---|---|---|---|"
    for what, beside, above, below, wanted in rows:
        yield f"| {what} | {beside} | {median_ratio(rounds, above, below):.1f}× | {wanted} |"
    share = median_ratio(rounds, "machine", "tested")
    rate = statistics.median(times["flops"] / times["machine"] for times in rounds) / 1e9
    yield (
        f"\nAgainst the machine: {share:.0%} of the rate of its batched products, which do "
        f"{rate:.0f} GFLOP/s a core in this run, as torch computes them in these shapes (wanted: "
        "50%). An epoch's time goes to:\n"
    )
    yield "| part | share |\n|---|---|"
    for part, value in shares.items():
        yield f"| {part} | {value:.1%} |"
    yield "\nThe cost grows as a power of\n\n| of | exponent |\n|---|---|"
    for what, value in growth.items():
        yield f"| {what} | {value:.2f} |"
    trained = peak_memory("training.stack(test_every=1).run_epoch()")
    yield (
        f"\nPeak memory of a process that trains the stack of {SEEDS * METHODS}: {trained:.0f} MB, "
        f"of which {peak_memory('pass'):.0f} MB are for the imports (wanted: under 1,000 MB)."
    )


if __name__ == "__main__":
    options = parser(__doc__, rounds=7).parse_args()
    publish(report(options.rounds), options.out)
