"""What a model is to be shown."""

from pathlib import Path

import pytest

from tests.evaluate.made import model
from xskill.data.config import DataConfig
from xskill.engine.config import to_json
from xskill.engine.log import plain_console
from xskill.evaluate import command
from xskill.evaluate.protocol import new_orders
from xskill.kitchen.demos import Demonstrations
from xskill.transfer.model import save_model


def test_new_orders_are_new_to_what_a_model_has_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, before = (to_json(DataConfig(demos=demos, seed=seed)) for demos, seed in (("new", 0), ("scripted", 7)))
    save_model(model(), tmp_path, {"data": data, "base": {"data": before}})
    first = new_orders([])
    known = {("new", 0): first[:3], ("scripted", 7): first[3:9]}
    monkeypatch.setattr(command, "_read", lambda source, count, seed, *_: Demonstrations(tuple(known[source, seed])))
    bench = command._Bench(tmp_path, "orders", command.Evaluate((tmp_path,), device="cpu"), plain_console(quiet=True))
    shown = {demo.order for demo in bench.prompts}
    assert len(shown) == len(first)
    assert shown & {demo.order for demo in first} == {demo.order for demo in first[9:]}
