"""Configurations become JSON and come back; what does not fit is answered with a name and a reason."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskill.engine.config import LoopConfig, did_you_mean, differences, from_json, to_json
from xskill.errors import ConfigError
from xskill.presets import PRESETS, Config


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[float, float] = (0.5, 1.0)
    mode: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    name: str
    flag: bool = False
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


inners = st.builds(
    Inner,
    sizes=st.lists(st.integers()).map(tuple),
    pair=st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)),
    mode=st.sampled_from(["a", "b"]),
)
outers = st.builds(Outer, name=st.text(), flag=st.booleans(), limit=st.none() | st.integers(), inner=inners)


@given(outers)
def test_any_config_survives_json(config: Outer) -> None:
    assert from_json(Outer, json.loads(json.dumps(to_json(config)))) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_survives_json(preset: str) -> None:
    config = PRESETS[preset][1]
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


def test_missing_fields_keep_their_defaults() -> None:
    assert from_json(Outer, {"name": "x", "inner": {"mode": "b"}}) == Outer("x", inner=Inner(mode="b"))


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"name": "x", "flagg": True}, r"config has no field 'flagg' \(did you mean 'flag'\?\)"),
        ({"name": "x", "inner": {"size": [1]}}, r"config.inner has no field 'size' \(did you mean 'sizes'\?\)"),
        ({"name": 3}, "config.name is 3; expected str"),
        ({"name": "x", "flag": 1}, "config.flag is 1; expected bool"),
        ({"name": "x", "limit": True}, "config.limit is True; expected"),
        ({"name": "x", "inner": {"sizes": [1, "2"]}}, r"config.inner.sizes\[1\] is '2'; expected int"),
        ({"name": "x", "inner": {"pair": [1.0]}}, r"config.inner.pair is \[1.0\]; expected"),
        ({"name": "x", "inner": {"mode": "c"}}, "config.inner.mode is 'c'; expected one of 'a', 'b'"),
        ({"name": "x", "inner": 4}, "config.inner is 4; expected an object"),
        ({}, "missing 1 required positional argument: 'name'"),
        ([], r"config is \[\]; expected an object"),
    ],
)
def test_what_does_not_fit_is_named(values: object, answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        from_json(Outer, values)


@pytest.mark.parametrize(
    "field_", [f.name for f in dataclasses.fields(LoopConfig) if f.type in ("int", "float", int, float)]
)
def test_no_number_of_the_loop_may_be_negative(field_: str) -> None:
    with pytest.raises(ConfigError, match=f"{field_} is -1"):
        LoopConfig(**{field_: -1})


def test_a_far_name_is_answered_with_the_whole_choice() -> None:
    assert did_you_mean("kichen", PRESETS) == " (did you mean 'kitchen'?)"
    assert did_you_mean("xyz", ["one", "two"]) == " (choose from one, two)"


def test_differences_are_dotted() -> None:
    old = to_json(PRESETS["debug"][1])
    new = json.loads(json.dumps(old))
    assert differences(old, new) == {}
    new["discover"]["loop"]["steps"] = 3
    new["added"] = 1
    assert differences(old, new) == {"discover.loop.steps": (60, 3), "added": (None, 1)}
