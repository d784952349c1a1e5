"""Compare the speed of stacked training with ordinary loops and with the machine's limit.

    .venv/bin/python benchmarks/training.py                    the paper's protocol on bike data
    .venv/bin/python benchmarks/training.py --rounds 3         a short run
    .venv/bin/python benchmarks/training.py --out results.md   writes the report to a file

The candidates take turns within each round, so that a busy machine slows all of them alike. The
report has the medians of the rounds' ratios. All labels have noise and variances; every candidate
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
STEPS = TRAIN // BATCH  # steps per epoch, without the incomplete batch
SEEDS, METHODS = 5, 8  # a stack of forty
WIDTHS = (FEATURES, 100, 50, 20, 10, 1)


def table(seed, train=TRAIN, test=TEST):
    """Return noisy training rows and clean test rows, drawn from the included Bike Sharing data.

    There are as many rows as in the paper; they are drawn with replacement, so that no download is
    needed.
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
    """Return members for several seeds; the methods of a seed share its rows, as in the paper."""
    losses = [biv.BIVLoss(), biv.L2Loss(), biv.IVLoss(), *(biv.CutoffLoss(c) for c in (0.3, 0.6))]
    tables = [table(seed, **sizes) for seed in range(seeds)]
    return [
        Member(train, test, losses[method % len(losses)], seed=seed)
        for seed, (train, test) in enumerate(tables)
        for method in range(methods)
    ]


def stack(*, test_every, count=None, **sizes):
    """Return a stack, by default of forty members."""
    chosen = members(**sizes)[:count]
    return Stack(MLP(FEATURES), chosen, Schedule(drop_last=True, test_every=test_every))


# The baselines.


def network():
    """Return the paper's network, written in plain PyTorch."""
    layers = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def dataloader_loop(*, tested):
    """Train with TensorDataset, DataLoader and torch.optim.Adam; yield after every step."""
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
    """Train in the fastest ordinary loop: indexed tensors, fused Adam, one batch of test rows."""
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


def seconds_per_step(loop, steps):
    """Return the seconds per step of an ordinary loop."""
    start = time.perf_counter()
    for _ in range(steps):
        next(loop)
    return (time.perf_counter() - start) / steps


def seconds_per_member_step(engine, epochs=1):
    """Return the seconds per member and step of a stack."""
    start = time.perf_counter()
    for _ in range(epochs):
        engine.run_epoch()
    return (time.perf_counter() - start) / (epochs * STEPS * len(engine.members))


# The machine's limit: the same batched products without anything else.


def products(count, rows, *, backward):
    """Return (name, flops, call) of every batched product of `count` members on `rows` rows."""
    result = []
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
        result += [(f"{inputs}→{outputs} {name}", flops, call) for name, call in calls.items()]
    return result


def product_seconds(count, rows, *, backward, repeats):
    """Return the flops of one pass of these products, and the seconds it takes."""
    flops = seconds = 0.0
    for _, product_flops, call in products(count, rows, backward=backward):
        call()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        seconds += (time.perf_counter() - start) / repeats
        flops += product_flops
    return flops, seconds


def machine_seconds_per_member_step():
    """Return the flops of one member's step and test, and the seconds of their products alone."""
    count = METHODS  # members that share a test set share one product
    train_flops, train = product_seconds(20, BATCH, backward=True, repeats=5)
    test_flops, test = product_seconds(count, 512, backward=False, repeats=10)
    scale = TEST / 512 / count
    return train_flops / 20 + test_flops * scale, train / 20 + test * scale


# Several processes, one per core.


def worker(barrier, results, threads, epochs, tested):
    """Train a stack in one process, which starts at the same time as the others."""
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
    """Return the seconds per member and step of `cores` processes together."""
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


# Parts of the time, its growth, and memory.

PARTS = {
    "matrix products": "bmm baddbmm addmm_",
    "bias and activation": "copy_ clamp_min_ relu_ threshold_backward",
    "gather": "index_select index",
    "optimiser": "_fused_adam_ Optimizer.step#Adam.step _foreach_add_",
    "errors, losses and sums": "sum mean sub sub_ pow_ square_ mul mul_ add_",
}


def breakdown(engine):
    """Return the fraction of an epoch's time that each kind of work takes, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        engine.run_epoch()
    events = recorded.key_averages()
    times = {event.key.removeprefix("aten::"): event.self_cpu_time_total for event in events}
    total = sum(times.values())
    parts = {part: sum(times.get(key, 0.0) for key in keys.split()) for part, keys in PARTS.items()}
    parts["views, Python and the rest"] = total - sum(parts.values())
    return {part: value / total for part, value in parts.items()}


def exponent(sizes, measure):
    """Return the slope of log(seconds) over log(size); 1 is linear growth."""
    logs = np.log([[size, measure(size)] for size in sizes])
    return np.polyfit(logs[:, 0], logs[:, 1], 1)[0]


def epoch_seconds(**arguments):
    """Return the seconds of the fastest of three epochs."""
    engine = stack(**arguments)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        engine.run_epoch()
        times.append(time.perf_counter() - start)
    return min(times)


def exponents():
    """Return the exponents by which time grows with members, epochs, training and test rows."""
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
    """Return the peak memory in megabytes of a new process that runs `job`; Linux only."""
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
    """Print the peak memory; the resource module would include that of the parent process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(int(kilobytes) / 1024)


def median_ratio(rounds, above, below):
    """Return the median ratio of two columns of the rounds."""
    return statistics.median(times[above] / times[below] for times in rounds)


def report(round_count):
    """Measure, and yield the report as lines of Markdown."""
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
        for _ in range(round_count):
            times = {name: seconds_per_step(loop, steps) for name, (loop, steps) in loops.items()}
            for name, engine in engines.items():
                times[name] = seconds_per_member_step(engine)
            times["flops"], times["machine"] = machine_seconds_per_member_step()
            for tested, name in ((True, "cores tested"), (False, "cores")):
                times[name] = seconds_with_all_cores(
                    cores, tested=tested, epochs=1 if tested else 4
                )
            rounds.append(times)
        fractions = breakdown(engines["tested"])
        growth = exponents()
    tested, alone = "test set scored after every step", "training alone"
    usual, best = "DataLoader loop", "fastest plain loop"
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
        f"The data have the shape of Bike Sharing: {TRAIN:,} training rows, {TEST:,} test rows, "
        f"batches of {BATCH}. The stack has {SEEDS * METHODS} members. Figures are medians of "
        f"{round_count} rounds.\n"
    )
    yield (
        "The loops run in one process with one thread. The DataLoader loop is written in the usual "
        "way, with a DataLoader for the test set too. The fastest plain loop indexes tensors, uses "
        "a fused Adam and scores the test set as one batch.\n"
    )
    yield "| training | compared with | times as fast | target |\n|---|---|---|---|"
    for training, baseline, above, below, target in rows:
        ratio = median_ratio(rounds, above, below)
        yield f"| {training} | {baseline} | {ratio:.1f}× | {target} |"
    fraction = median_ratio(rounds, "machine", "tested")
    rate = statistics.median(times["flops"] / times["machine"] for times in rounds) / 1e9
    yield (
        f"\nThe stack reaches {fraction:.0%} of the speed of its batched matrix products alone, "
        f"which is {rate:.0f} GFLOP/s per core in these shapes (target: 50%). The time of an epoch "
        "is spent on:\n"
    )
    yield "| part | fraction |\n|---|---|"
    for part, value in fractions.items():
        yield f"| {part} | {value:.1%} |"
    yield "\nThe time grows as a power of these numbers:\n\n| number of | exponent |\n|---|---|"
    for number, value in growth.items():
        yield f"| {number} | {value:.2f} |"
    trained = peak_memory("training.stack(test_every=1).run_epoch()")
    yield (
        f"\nThe peak memory of a process that trains the stack of {SEEDS * METHODS} is "
        f"{trained:.0f} MB, of which {peak_memory('pass'):.0f} MB are for the imports (target: "
        "below 1,000 MB)."
    )


if __name__ == "__main__":
    options = parser(__doc__, rounds=7).parse_args()
    publish(report(options.rounds), options.out)
