"""A small part of the campaigns of `make fuzz`, with fixed seeds; tests/fuzz has the checks."""

import numpy as np
import pytest

from fuzz import full
from fuzz.campaigns import CAMPAIGNS
from fuzz.disk import watched
from fuzz.laws import require_finite
from fuzz.running import State, batches, run_case
from fuzz.spoiling import changed, dumps
from helpers.sizes import size

SEED = 2026
PART = {  # case numbers of each campaign: about 30 seconds in all, or 5 minutes in the long form
    "losses": range(size(400, 2000)),
    "fits": range(size(30, 200)),
    "tables": range(size(40, 400)),
    "files": range(size(40, 400)),
    "faults": range(20, size(30, 80)),
    "full": range(1, size(2, 10)),
    "kills": range(2, size(3, 10)),
}


@pytest.mark.slow
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_laws_hold(campaign):
    if campaign == "full":
        try:
            full.require_mount()
        except full.CannotMountError as error:
            pytest.skip(str(error))
    failures = {
        number: failure
        for number in PART[campaign]
        if (failure := run_case(campaign, CAMPAIGNS[campaign], SEED, number))
    }
    shown = "\n".join(f"{campaign} {n}: {failure}" for n, failure in list(failures.items())[:5])
    assert not failures, f"{len(failures)} of {len(PART[campaign])} cases failed\n{shown}"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (lambda rng, folder, number: None, None),
        (lambda rng, folder, number: (folder / "missing").unlink(), "FileNotFoundError escaped"),
        (lambda rng, folder, number: require_finite("y", [1, rng.integers(1) + np.inf]), "y holds"),
    ],
)
def test_a_case_that_breaks_a_law_is_a_failure(case, message):
    failure, repeated = (run_case("losses", case, 0, 5) for _ in range(2))
    assert failure == repeated
    assert failure is None if message is None else failure.startswith(message)


def test_a_changed_content_depends_on_its_seed_alone():
    """The values that replace a part of one content must not be shared with later contents."""
    first, second = (
        [dumps(changed(np.random.default_rng(seed), {"a": [1], "b": {}})) for seed in range(300)]
        for _ in range(2)
    )
    assert first == second


def test_a_write_that_fails_is_an_error_of_the_file(tmp_path):
    with (
        watched(tmp_path, 2) as watch,
        pytest.raises(OSError, match="No space left"),
        (tmp_path / "a").open("w") as file,
    ):
        file.write("text")
    assert [kind for kind, _ in watch.calls][:2] == ["open", "write"]
    with watched(tmp_path, 1), pytest.raises(OSError, match="No space left"):
        (tmp_path / "b").mkdir()
    assert not (tmp_path / "b").exists()


def test_a_run_resumes_where_it_stopped(tmp_path):
    cases = {"losses": 50, "kills": 2}
    assert sorted(n for _, _, numbers in batches(cases) for n in numbers) == [
        0,
        0,
        1,
        *range(1, 50),
    ]
    state = State(tmp_path / "state.json", 3)
    state.add("losses", "0-19", 1.5, {"7": "why"})
    resumed = State(tmp_path / "state.json", 3)
    assert (resumed.done, resumed.seconds, resumed.failures) == (
        {"losses": ["0-19"]},
        {"losses": 1.5},
        {"losses": {"7": "why"}},
    )
    assert not State(tmp_path / "state.json", 4).done  # another seed
