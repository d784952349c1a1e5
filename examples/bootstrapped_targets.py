"""Targets r + γV(s′) of reinforcement learning, with the variance of V(s′) from an ensemble.

    python examples/bootstrapped_targets.py            five seeds, a minute on one core
    python examples/bootstrapped_targets.py --small    a quick look, some seconds

A policy walks on a grid with a goal and a pit. Critics learn the values of its cells in rounds. In
each round, `biv.labels.bootstrapped` computes targets and variances from the critics' values of the
next cell, and the critics learn from these. The true values come from linear algebra.

**BIV is better in the first rounds, and worse in the end.** Learning begins at the ends of
episodes, where targets are certain, and BIV trusts these first. But the variance of a target states
only how certain the critics are about V(s′). If s′ is random, the targets of one cell and move have
larger weights where they led to a cell with a certain value. What is learned is then no longer the
mean over the random moves. Averaging σ² over all targets of the same cell and move removes most of
that harm. It requires cells that are visited several times, and the result is no better than L2.
Without random moves, BIV is worse in the end too.

Output (the last digits differ between machines):

    Error of V, learned from 1500 transitions (mean ± std of the seeds)
    No moves slip; V = 0 everywhere has an error of 0.342
                        4 rounds        relative to L2         40 rounds       relative to L2
      L2                0.232 ± 0.029   1.00 ± 0.00, 0 lower   0.018 ± 0.003   1.00 ± 0.00, 0 lower
      BIV               0.177 ± 0.035   0.76 ± 0.06, 5 lower   0.036 ± 0.016   2.08 ± 1.06, 0 lower
    4 of 10 moves slip; V = 0 everywhere has an error of 0.226
                        4 rounds        relative to L2         40 rounds       relative to L2
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
REWARD = np.zeros(len(CELLS))  # reward for entering a cell
REWARD[-1], REWARD[SIDE * SIDE // 2 + SIDE // 2] = 1.0, -1.0  # the goal, and a pit in the middle
ENDS = REWARD != 0
MOVES = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
POLICY = np.array(
    [0.35, 0.35, 0.15, 0.15]
)  # probabilities of the moves; the policy drifts towards the goal
AFTER = np.clip(CELLS[:, None] + MOVES, 0, SIDE - 1) @ (SIDE, 1)  # the next cell; walls stop a move
PLACE = (CELLS - CELLS.mean(axis=0)) / CELLS.std(axis=0)
EVERYWHERE = np.concatenate(  # features of every cell and move, (cells, moves, 6)
    [np.repeat(PLACE[:, None], 4, axis=1), np.tile(np.eye(4), (len(CELLS), 1, 1))], axis=2
)
L2, BIV, AVERAGED = "L2", "BIV", "BIV, σ² averaged"
WORLDS = {  # probability that a move slips, to a random direction; without it, averaging is useless
    "No moves slip": (0.0, (L2, BIV)),
    "4 of 10 moves slip": (0.4, (L2, BIV, AVERAGED)),
}


def exact_values(slip):
    """Return V of every cell, and the fraction of time that the policy spends there."""
    steps = np.zeros((len(CELLS), len(CELLS)))
    for move, probability in enumerate((1 - slip) * POLICY + slip / 4):
        steps[np.arange(len(CELLS)), AFTER[:, move]] += probability
    steps[ENDS] = 0  # the episode ends there
    identity = np.eye(len(CELLS))
    visits = np.linalg.solve((identity - steps).T, identity[0]) * ~ENDS
    return np.linalg.solve(identity - GAMMA * steps, steps @ REWARD), visits / visits.sum()


def explore(transitions, slip, rng):
    """Run episodes from the first cell and return the cells, moves and next cells."""
    rows, cell = [], 0
    while len(rows) < transitions:
        move = rng.choice(4, p=POLICY)
        after = AFTER[cell, rng.integers(4) if rng.random() < slip else move]
        rows.append((cell, move, after))
        cell = 0 if ENDS[after] else after
    return np.array(rows).T


def mean_by_group(group, values):
    """Replace each value by the mean of its group."""
    return (np.bincount(group, values) / np.maximum(np.bincount(group), 1))[group]


def evaluate(method, cell, move, after, rounds, seed):
    """Evaluate the policy with an ensemble; return V of every cell after each round."""
    generator = torch.Generator().manual_seed(seed)
    critics = [biv.models.MLP(6, (32, 32))(generator) for _ in range(CRITICS)]
    parameters, _ = torch.func.stack_module_state(critics)  # to train all critics at once
    optimizer = torch.optim.Adam(parameters.values(), lr=1e-3)

    def forward(critic_parameters, x):
        return torch.func.functional_call(critics[0], critic_parameters, (x,))[..., 0]

    @torch.no_grad()
    def cell_values():
        """Return each critic's value of every cell, averaged over the moves of the policy."""
        everywhere = torch.tensor(EVERYWHERE, dtype=torch.float32)
        return torch.vmap(forward, (0, None))(parameters, everywhere).numpy() @ POLICY

    x = torch.tensor(EVERYWHERE[cell, move], dtype=torch.float32)
    # Each critic learns from its own resample of the transitions and its own targets.
    resample = torch.randint(len(cell), (CRITICS, len(cell)), generator=generator)
    critic, values, means = torch.arange(CRITICS)[:, None], cell_values(), []
    for _ in range(rounds):
        variance = biv.labels.ensemble(values).variance
        y, sigma2 = biv.labels.bootstrapped(
            *np.broadcast_arrays(REWARD[after], values[:, after], variance[after]),
            gamma=GAMMA,
            terminal=np.tile(ENDS[after], (CRITICS, 1)),
        )
        if method == AVERAGED:
            sigma2 = np.stack([mean_by_group(4 * cell + move, row) for row in sigma2])
        epsilon = biv.epsilon.Relative(0.05, y.var())  # relative to the present targets
        loss_function = biv.L2Loss() if method == L2 else biv.BIVLoss(epsilon)
        y, sigma2 = torch.tensor(np.stack([y, sigma2]), dtype=torch.float32)
        for _ in range(STEPS):
            rows = torch.randint(len(cell), (CRITICS, 64), generator=generator)
            rows = resample.gather(1, rows)
            optimizer.zero_grad()
            pred = torch.vmap(forward)(parameters, x[rows])
            loss_function(pred, y[critic, rows], sigma2[critic, rows]).backward()
            optimizer.step()
        values = cell_values()
        means.append(values.mean(axis=0))
    return means


def main(arguments=None):
    """Evaluate a policy with each method, without and with moves that slip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="number of seeds (default: 5, or 2 with --small)")
    parser.add_argument(
        "--small", action="store_true", help="use less data and fewer epochs, for a quick look"
    )
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    transitions, rounds = (600, (3, 6)) if options.small else (1500, (4, 40))

    errors_of = {}
    print(f"Error of V, learned from {transitions} transitions (mean ± std of the seeds)")
    for world, (slip, methods) in WORLDS.items():
        truth, visits = exact_values(slip)
        zero_error = np.sqrt(visits @ truth**2)
        print(f"{world}; V = 0 everywhere has an error of {zero_error:.3f}")
        print(
            " " * 20
            + "   ".join(f"{f'{k} rounds':13}   {'relative to L2':20}" for k in rounds).rstrip()
        )
        for method in methods:
            errors = np.empty((len(rounds), seeds))
            for seed in range(seeds):
                transitions_seen = explore(transitions, slip, np.random.default_rng(seed))
                means = evaluate(method, *transitions_seen, max(rounds), seed)
                errors[:, seed] = [np.sqrt(visits @ (means[k - 1] - truth) ** 2) for k in rounds]
            errors_of[world, method] = errors
            cells = [
                f"{error.mean():.3f} ± {error.std():.3f}   "
                f"{ratio.mean():.2f} ± {ratio.std():.2f}, {np.sum(ratio < 1)} lower"
                for error, ratio in zip(errors, errors / errors_of[world, L2], strict=True)
            ]
            print(f"  {method:18}{'   '.join(cells)}")
    return errors_of


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not speed up small networks
    main()
