"""Targets r + γV(s′) of reinforcement learning, as uncertain as an ensemble is about V(s′).

    python examples/bootstrapped_targets.py            five seeds, a minute on one core
    python examples/bootstrapped_targets.py --small    a quick look, some seconds

A policy walks on a grid with a goal and a pit. Critics learn its values from what it has seen, in
rounds: `biv.labels.bootstrapped` makes targets and variances of what the critics say of the next
cell, then they learn from those. The true values come from linear algebra.

**BIV is ahead in the first rounds, and behind in the end.** Learning begins at the ends of
episodes, whose targets are certain, and BIV trusts these first. But a target's variance says only
how sure the critics are of V(s′). Where chance decides on s′, of the targets of one cell and move
those count more that led to where critics are sure, and the mean over the chances is no longer what
is learned. Averaging σ² over all targets of the same cell and move takes most of that harm away,
which wants cells that are visited again; it is then no better than L2. Where moves do what they
say, BIV is behind all the same.

What comes out (the last digits differ between machines):

    Error of V, learned from 1500 transitions (mean ± std of the seeds)
    Moves do what they say; V = 0 everywhere has an error of 0.342
                        4 rounds        over L2                40 rounds       over L2
      L2                0.232 ± 0.029   1.00 ± 0.00, 0 lower   0.018 ± 0.003   1.00 ± 0.00, 0 lower
      BIV               0.177 ± 0.035   0.76 ± 0.06, 5 lower   0.036 ± 0.016   2.08 ± 1.06, 0 lower
    4 of 10 moves slip; V = 0 everywhere has an error of 0.226
                        4 rounds        over L2                40 rounds       over L2
      L2                0.153 ± 0.017   1.00 ± 0.00, 0 lower   0.069 ± 0.015   1.00 ± 0.00, 0 lower
      BIV               0.107 ± 0.025   0.69 ± 0.11, 5 lower   0.098 ± 0.010   1.50 ± 0.38, 1 lower
      BIV, σ² averaged  0.129 ± 0.024   0.84 ± 0.09, 5 lower   0.076 ± 0.014   1.12 ± 0.20, 2 lower
"""

import argparse

import numpy as np
import torch

import biv

SIDE, GAMMA, CRITICS, STEPS = 8, 0.95, 8, 50
CELLS = np.array([(i, j) for i in range(SIDE) for j in range(SIDE)])
REWARD = np.zeros(len(CELLS))  # of entering a cell
REWARD[-1], REWARD[SIDE * SIDE // 2 + SIDE // 2] = 1.0, -1.0  # the goal, and a pit in the middle
ENDS = REWARD != 0
MOVES = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
POLICY = np.array([0.35, 0.35, 0.15, 0.15])  # of these moves: it drifts towards the goal
AFTER = np.clip(CELLS[:, None] + MOVES, 0, SIDE - 1) @ (SIDE, 1)  # where each leads; walls hold
PLACE = (CELLS - CELLS.mean(axis=0)) / CELLS.std(axis=0)
EVERYWHERE = np.concatenate(  # what networks see of every cell and move, (cells, moves, 6)
    [np.repeat(PLACE[:, None], 4, axis=1), np.tile(np.eye(4), (len(CELLS), 1, 1))], axis=2
)
L2, BIV, AVERAGED = "L2", "BIV", "BIV, σ² averaged"
WORLDS = {  # how many moves slip, and go anywhere; where none does, averages change nothing
    "Moves do what they say": (0.0, (L2, BIV)),
    "4 of 10 moves slip": (0.4, (L2, BIV, AVERAGED)),
}


def exact_values(slip):
    """V of every cell, and the share of time that the policy is there, by linear algebra."""
    steps = np.zeros((len(CELLS), len(CELLS)))
    for move, share in enumerate((1 - slip) * POLICY + slip / 4):
        steps[np.arange(len(CELLS)), AFTER[:, move]] += share
    steps[ENDS] = 0  # nothing follows
    one = np.eye(len(CELLS))
    visits = np.linalg.solve((one - steps).T, one[0]) * ~ENDS
    return np.linalg.solve(one - GAMMA * steps, steps @ REWARD), visits / visits.sum()


def explore(transitions, slip, rng):
    """Episodes of the policy, from the first cell on: cells, moves, and the cells after them."""
    rows, cell = [], 0
    while len(rows) < transitions:
        move = rng.choice(4, p=POLICY)
        after = AFTER[cell, rng.integers(4) if rng.random() < slip else move]
        rows.append((cell, move, after))
        cell = 0 if ENDS[after] else after
    return np.array(rows).T


def mean_by_group(group, values):
    """The mean of each group's values, in the place of each."""
    return (np.bincount(group, values) / np.maximum(np.bincount(group), 1))[group]


def evaluate(method, cell, move, after, rounds, seed):
    """Fitted policy evaluation by an ensemble: V of every cell, after each round."""
    generator = torch.Generator().manual_seed(seed)
    critics = [biv.models.MLP(6, (32, 32))(generator) for _ in range(CRITICS)]
    parameters, _ = torch.func.stack_module_state(critics)  # so that all are trained at once
    optimizer = torch.optim.Adam(parameters.values(), lr=1e-3)

    def forward(own, x):
        return torch.func.functional_call(critics[0], own, (x,))[..., 0]

    @torch.no_grad()
    def values():
        """What each critic says of every cell, by the moves that the policy makes there."""
        everywhere = torch.tensor(EVERYWHERE, dtype=torch.float32)
        return torch.vmap(forward, (0, None))(parameters, everywhere).numpy() @ POLICY

    x = torch.tensor(EVERYWHERE[cell, move], dtype=torch.float32)
    # A critic learns from a resample of the transitions, and from targets of its own.
    resample = torch.randint(len(cell), (CRITICS, len(cell)), generator=generator)
    critic, own, means = torch.arange(CRITICS)[:, None], values(), []
    for _ in range(rounds):
        variance = biv.labels.ensemble(own).variance
        y, sigma2 = biv.labels.bootstrapped(
            *np.broadcast_arrays(REWARD[after], own[:, after], variance[after]),
            gamma=GAMMA,
            terminal=np.tile(ENDS[after], (CRITICS, 1)),
        )
        if method == AVERAGED:
            sigma2 = np.stack([mean_by_group(4 * cell + move, one) for one in sigma2])
        epsilon = biv.epsilon.Relative(0.05, y.var())  # of the targets, as they are now
        loss_function = biv.L2Loss() if method == L2 else biv.BIVLoss(epsilon)
        y, sigma2 = torch.tensor(np.stack([y, sigma2]), dtype=torch.float32)
        for _ in range(STEPS):
            rows = torch.randint(len(cell), (CRITICS, 64), generator=generator)
            rows = resample.gather(1, rows)
            optimizer.zero_grad()
            pred = torch.vmap(forward)(parameters, x[rows])
            loss_function(pred, y[critic, rows], sigma2[critic, rows]).backward()
            optimizer.step()
        own = values()
        means.append(own.mean(axis=0))
    return means


def main(arguments=None):
    """Evaluate a policy with each method, in a world without chance and in a slippery one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="how many (default: 5, or 2 if small)")
    parser.add_argument("--small", action="store_true", help="less of everything, for a quick look")
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    transitions, rounds = (600, (3, 6)) if options.small else (1500, (4, 40))

    found = {}
    print(f"Error of V, learned from {transitions} transitions (mean ± std of the seeds)")
    for world, (slip, methods) in WORLDS.items():
        truth, share = exact_values(slip)
        nothing = np.sqrt(share @ truth**2)
        print(f"{world}; V = 0 everywhere has an error of {nothing:.3f}")
        print(
            " " * 20 + "   ".join(f"{f'{k} rounds':13}   {'over L2':20}" for k in rounds).rstrip()
        )
        for method in methods:
            errors = np.empty((len(rounds), seeds))
            for seed in range(seeds):
                seen = explore(transitions, slip, np.random.default_rng(seed))
                means = evaluate(method, *seen, max(rounds), seed)
                errors[:, seed] = [np.sqrt(share @ (means[k - 1] - truth) ** 2) for k in rounds]
            found[world, method] = errors
            told = [
                f"{error.mean():.3f} ± {error.std():.3f}   "
                f"{ratio.mean():.2f} ± {ratio.std():.2f}, {np.sum(ratio < 1)} lower"
                for error, ratio in zip(errors, errors / found[world, L2], strict=True)
            ]
            print(f"  {method:18}{'   '.join(told)}")
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks gain nothing from more
    main()
