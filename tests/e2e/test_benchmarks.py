"""Every benchmark runs alone and ends with one JSON object."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.kitchen.made import standing_still

# Options that make each small, and the ratios it prints.
SMALL = {
    "act": (["--preset", "debug", "--reference", "quick", "--chunks", "3", "--device", "cpu"], {"over_paper"}),
    "discover": (["--preset", "debug", "--videos", "2", "--device", "cpu"], {"over_loop"}),
    "evaluate": (["--preset", "debug", "--episodes", "2", "--serial", "1", "--device", "cpu"], {"over_serial"}),
    "expert": (["--orders", "2", "--alone", "1"], set()),
    "frames": (["--videos", "2", "--length", "20", "--clips", "4", "--size", "32"], {"over_decoding"}),
    "loop": (["--steps", "5", "--device", "cpu"], {"over_bare"}),
    "replay": (["--demos", "MADE"], set()),
    "parallel": (["--chunks", "1"], {"environments", "over_every_frame", "filming"}),
    "render": (["--states", "2", "--default-frames", "1"], {"over_default", "over_flags"}),
    "transfer": (["--preset", "debug", "--batch", "4", "--device", "cpu"], {"over_loader"}),
    "start": ([], {"over_python", "over_torch"}),
}


def test_every_benchmark_is_tested_here() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_its_numbers(name: str, tmp_path: Path) -> None:
    options, ratios = SMALL[name]
    options = [str(standing_still(tmp_path / "made.npz")) if option == "MADE" else option for option in options]
    rounds = ["--rounds", "2"] if ratios else []
    words = [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--json", *rounds, *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    for ratio in ratios:
        low, high = printed[f"{ratio}_quartiles"]
        assert 0 < low <= printed[ratio] <= high
    if name == "act":
        assert 0 < printed["p50_ms"] <= printed["p99_ms"]
    if ratios:
        assert printed["rounds"] == 2
    elif name == "expert":
        assert {"ordered_all", "within_280", "per_task", "pushed", "median_steps"} <= set(printed)
        assert printed["ordered_all"] > 0
        assert set(printed["per_task"].values()) == {1}
    else:
        assert printed["demos"] == 2
        assert printed["all_four"] == 0
        assert printed["failures"]["friday_kettle_switch/a"] == ["kettle", "light"]
