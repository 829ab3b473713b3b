"""Every benchmark runs alone and ends with one JSON object."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SMALL = {
    "loop": (["--steps", "5", "--device", "cpu"], {"over_bare"}),
    "start": ([], {"over_python", "over_torch"}),
}


def test_every_benchmark_is_tested_here() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_its_ratios(name: str) -> None:
    options, ratios = SMALL[name]
    words = [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--json", "--rounds", "2", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    for ratio in ratios:
        low, high = printed[f"{ratio}_quartiles"]
        assert 0 < low <= printed[ratio] <= high
    assert printed["rounds"] == 2
