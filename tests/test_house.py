"""Promises the whole house keeps."""

import re
import tomllib

from tests.conftest import ROOT
from xskill.info import EXTRAS, PACKAGES


def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return loaded


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!\[ ;]", requirement)[0] for requirement in requirements}


def test_info_knows_every_dependency_and_every_extra() -> None:
    stated = project()
    assert names(stated["dependencies"]) == set(PACKAGES)
    extras = {name: names(needs) for name, needs in stated["optional-dependencies"].items() if name != "dev"}
    assert extras == {name: set(needs) for name, (needs, _) in EXTRAS.items()}


def test_the_tested_set_pins_what_the_project_states() -> None:
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    stated = names(project()["dependencies"])
    for needs, _ in EXTRAS.values():
        stated |= set(needs)
    assert stated <= pinned


def test_nothing_is_ever_pickled() -> None:
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        found = re.search(
            r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(|allow_pickle=True|cloudpickle|\bdill\b",
            path.read_text(),
        )
        assert not found, f"{path}: {found}"


def test_nothing_that_trains_knows_the_ground_truth() -> None:
    """Where one sub-task ends is for evaluation: it is written by the kitchen and read by what measures."""
    allowed = {"kitchen/film.py", "discover/measure.py"}
    for path in (ROOT / "src/xskill").rglob("*.py"):
        name = str(path.relative_to(ROOT / "src/xskill"))
        if name not in allowed and not name.startswith("evaluate/"):
            assert not re.search(r"ground.truth", path.read_text(), re.IGNORECASE), name


def test_files_stay_small_enough_to_read() -> None:
    long = {
        path.name: lines for path in ROOT.glob("src/**/*.py") if (lines := len(path.read_text().splitlines())) > 400
    }
    assert not long
