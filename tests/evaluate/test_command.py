"""What a model is to be shown, and what is believed of what was noted."""

import json
from pathlib import Path

import pytest

from tests.evaluate.made import model
from xskill.data.config import DataConfig
from xskill.engine.config import to_json
from xskill.engine.log import plain_console
from xskill.errors import CheckpointError, DataError
from xskill.evaluate import command
from xskill.evaluate.protocol import new_orders
from xskill.evaluate.records import read_records
from xskill.kitchen.demos import Demonstrations
from xskill.transfer.model import save_model


def test_new_orders_are_new_to_what_a_model_has_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, before = (to_json(DataConfig(demos=demos, seed=seed)) for demos, seed in (("new", 0), ("scripted", 7)))
    save_model(model(), tmp_path, {"data": data, "base": {"data": before}})
    first = new_orders([])
    known = {("new", 0): (first[:3], []), ("scripted", 7): (first[3:6], first[6:9])}  # the robot's, and others'

    def read(source: str, count: int, seed: int, *_: object) -> Demonstrations:
        good, shown = known[source, seed]
        return Demonstrations(tuple(good), shown=tuple(shown))

    monkeypatch.setattr(command, "_read", read)
    bench = command._Bench(tmp_path, "orders", command.Evaluate((tmp_path,), device="cpu"), plain_console(quiet=True))
    shown = {demo.order for demo in bench.prompts}
    assert len(shown) == len(first)
    assert shown & {demo.order for demo in first} == {demo.order for demo in first[9:]}


def test_demonstrations_may_lie_elsewhere_than_where_they_were_learned_from(tmp_path: Path) -> None:
    save_model(model(), tmp_path, {"data": to_json(DataConfig(demos="gone.npz"))})
    quiet = plain_console(quiet=True)
    with pytest.raises(DataError, match=r"there are no demonstrations at gone\.npz.*; name them with --demos PATH"):
        command._Bench(tmp_path, "orders", command.Evaluate((tmp_path,), device="cpu"), quiet)
    options = command.Evaluate((tmp_path,), demos="puppets:9", device="cpu")
    assert command._Bench(tmp_path, "orders", options, quiet).prompts


def test_what_is_made_is_known_though_what_was_recorded_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an order that was learned from could be taken for a new one."""
    save_model(model(), tmp_path, {"data": to_json(DataConfig(demos="gone.npz+scripted"))})
    read: list[str] = []
    monkeypatch.setattr(command, "_read", lambda source, *_: read.append(source) or Demonstrations(()))
    options = command.Evaluate((tmp_path,), demos="puppets:9", device="cpu")
    command._Bench(tmp_path, "orders", options, plain_console(quiet=True))
    assert read == ["puppets:9", "puppets:9+scripted"]


def test_trainings_on_the_same_demonstrations_are_alike_wherever_these_lie(tmp_path: Path) -> None:
    benches = []
    for seed, (demos, bank) in enumerate((("puppets:9", "a"), ("puppets:10", "a"), ("puppets:9", "b"))):
        about = {"data": to_json(DataConfig(demos=demos)), "banks": [bank], "seed": seed}
        save_model(model(), tmp_path / str(seed), about)
        options = command.Evaluate((tmp_path,), demos="puppets:9", device="cpu")
        benches.append(command._Bench(tmp_path / str(seed), "orders", options, plain_console(quiet=True)))
    one, elsewhere, other = (bench.trained_as() for bench in benches)
    assert one == elsewhere != other


def test_a_model_whose_config_has_changed_is_refused(tmp_path: Path) -> None:
    save_model(model(), tmp_path, {"data": to_json(DataConfig(demos="puppets:9"))})
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json has 1 bytes"):
        command._Bench(tmp_path, "seen", command.Evaluate((tmp_path,), device="cpu"), plain_console(quiet=True))


def test_only_records_that_can_be_are_believed(tmp_path: Path) -> None:
    good = {
        "setting": "same x1", "condition": 0, "prompt": "p", "asked": ["light", "slide"], "completed": [["light", 9]],
        "score": 0.5, "order_free": 0.5, "success": False, "steps": 140, "undone": None, "redone": None, "seconds": 1.5,
    }  # fmt: skip
    bad = [{"score": 1.0}, {"score": "0.5"}, {"success": "no"}, {"asked": []}, {"completed": [["light"]]}, {"more": 1}]
    lines = [good | {"made": "0.1", "device": "cpu"}, *(good | changes for changes in bad), good | {"condition": 1}]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{torn")
    assert [record.condition for record in read_records(tmp_path / "records.jsonl")] == [0, 1]
