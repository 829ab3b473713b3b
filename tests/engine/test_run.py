"""Run folders: never silently continued, never silently replaced, never shared."""

import json
from pathlib import Path
from typing import Any

import pytest

from xskill.engine.run import open_run, read_config
from xskill.errors import ConfigError, RunError

CONFIG: dict[str, Any] = {"seed": 0, "discover": {"steps": 5}, "transfer": {"steps": 7}}


def opened(folder: Path, config: dict[str, Any] = CONFIG, *, resume: bool = False, overwrite: bool = False) -> None:
    with open_run(folder, "debug", config, resume=resume, overwrite=overwrite):
        (folder / "discover").mkdir(exist_ok=True)
        (folder / "discover" / "weights").touch()


def test_an_existing_run_needs_resume_or_overwrite(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    with pytest.raises(
        RunError, match=r"already holds a run; continue it with --resume, or replace it with --overwrite"
    ):
        opened(tmp_path / "run")
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(tmp_path / "run", resume=True, overwrite=True)
    opened(tmp_path / "run", resume=True)
    assert (tmp_path / "run/discover/weights").exists()
    with open_run(tmp_path / "run", "debug", CONFIG, resume=False, overwrite=True):
        assert not (tmp_path / "run/discover").exists()


def test_only_a_run_folder_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not a run folder"):
        opened(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(RunError, match="is a file"):
        opened(tmp_path / "thesis.tex")


def test_an_empty_folder_is_as_good_as_none_but_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match="no run to resume"):
        opened(tmp_path / "run", resume=True)
    opened(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot make the run folder"):
        opened(tmp_path / "file" / "run")


def test_resuming_refuses_another_config_for_what_has_begun(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    with pytest.raises(RunError, match=r"another config \(discover.steps was 5, now 6\)"):
        opened(tmp_path / "run", CONFIG | {"discover": {"steps": 6}}, resume=True)
    with pytest.raises(RunError, match="seed was 0, now 1"):
        opened(tmp_path / "run", CONFIG | {"seed": 1}, resume=True)
    assert read_config(tmp_path / "run/config.json") == ("debug", CONFIG)
    changed = CONFIG | {"transfer": {"steps": 8}}  # not begun yet
    opened(tmp_path / "run", changed, resume=True)
    assert read_config(tmp_path / "run/config.json") == ("debug", changed)


def test_a_finished_phase_is_known_until_its_config_or_inputs_change(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", "debug", CONFIG, resume=False, overwrite=False) as run:
        assert run.result("discover", {"data": "abc"}) is None
        (run.folder / "discover").mkdir()
        run.finish("discover", {"data": "abc"}, {"best": 3})
        assert run.result("discover", {"data": "abc"}) == {"best": 3}
        assert run.result("discover", {"data": "abd"}) is None
        assert run.result("transfer", {}) is None
    with open_run(
        tmp_path / "other", "debug", CONFIG | {"discover": {"steps": 6}}, resume=False, overwrite=False
    ) as other:
        (other.folder / "discover").mkdir()
        (other.folder / "discover/done.json").write_bytes((run.folder / "discover/done.json").read_bytes())
        assert other.result("discover", {"data": "abc"}) is None
        (other.folder / "discover/done.json").write_text("{torn")
        assert other.result("discover", {"data": "abc"}) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", json.dumps({"config": {}})])
def test_a_file_that_is_no_config_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ConfigError, match="there is no config file"):
        read_config(path)
    path.write_text(content)
    with pytest.raises(ConfigError, match="not a config file"):
        read_config(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path)
