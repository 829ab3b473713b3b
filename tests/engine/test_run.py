"""Run folders: never silently continued, never silently replaced, never shared."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from xskill.engine.run import Run, open_run, read_config
from xskill.errors import ConfigError, RunError

CONFIG: dict[str, Any] = {"seed": 0, "discover": {"steps": 5}, "transfer": {"steps": 7}}


def as_it_is(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config


def opened(folder: Path, config: dict[str, Any] = CONFIG, *, resume: bool = False, overwrite: bool = False) -> None:
    with open_run(Run(folder, config), "debug", as_it_is, resume, overwrite):
        (folder / "discover").mkdir(exist_ok=True)
        (folder / "discover" / "weights").touch()


def test_an_existing_run_needs_resume_or_overwrite(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    with pytest.raises(
        RunError, match=r"already holds a run; continue it with --resume or replace it with --overwrite"
    ):
        opened(tmp_path / "run")
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(tmp_path / "run", resume=True, overwrite=True)
    opened(tmp_path / "run", resume=True)
    assert (tmp_path / "run/discover/weights").exists()
    with open_run(Run(tmp_path / "run", CONFIG), "debug", as_it_is, resume=False, overwrite=True):
        assert not (tmp_path / "run/discover").exists()


@pytest.mark.parametrize("config", [None, '{"name": "my web page"}', "{}", "no json"])
def test_only_a_run_folder_is_ever_overwritten(tmp_path: Path, config: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    for resume, overwrite in [(False, True), (True, False), (False, False)]:
        with pytest.raises(RunError, match="neither empty nor a run folder"):
            opened(tmp_path, resume=resume, overwrite=overwrite)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(RunError, match="is a file"):
        opened(tmp_path / "thesis.tex")


def test_overwriting_unlinks_links_and_leaves_what_they_point_to(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / "run" / "transfer").symlink_to(tmp_path / "other")
    opened(tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "transfer").exists()
    assert (tmp_path / "other" / "kept").exists()


def test_what_a_kill_leaves_of_a_new_run_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".aside-config.json").write_text("{")
    opened(tmp_path / "run")


def test_a_killed_overwrite_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path / "run")
    left = iter([True, False])
    real = Path.rename

    def dying(path: Path, target: Path) -> Path:
        if not next(left):
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "run", overwrite=True)
    monkeypatch.undo()
    assert not (tmp_path / "run" / "discover").exists()
    opened(tmp_path / "run", overwrite=True)


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


def test_a_phase_or_a_field_that_is_new_since_does_not_hinder_resuming(tmp_path: Path) -> None:
    opened(tmp_path / "run", {"seed": 0, "discover": {}})

    def load(saved: Mapping[str, Any]) -> Mapping[str, Any]:
        return CONFIG | {"seed": saved["seed"]}

    with open_run(Run(tmp_path / "run", CONFIG), "debug", load, resume=True, overwrite=False):
        assert read_config(tmp_path / "run/config.json") == ("debug", CONFIG)


def test_a_finished_phase_is_known_until_its_config_or_inputs_change(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", CONFIG)
    with open_run(run, "debug", as_it_is, resume=False, overwrite=False):
        assert run.result("discover", {"data": "abc"}) is None
        (run.folder / "discover").mkdir()
        run.finish("discover", {"data": "abc"}, {"best": 3})
        assert run.result("discover", {"data": "abc"}) == {"best": 3}
        assert run.result("discover", {"data": "abd"}) is None
        assert run.result("transfer", {}) is None
    other = Run(tmp_path / "other", CONFIG | {"discover": {"steps": 6}})
    with open_run(other, "debug", as_it_is, resume=False, overwrite=False):
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
