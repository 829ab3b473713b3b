"""The loop: what it computes, in which order, and what it leaves behind."""

import copy
import io
import math
import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import safetensors.torch
import torch
from benchmarks.harness.example import ExampleConfig, ExamplePhase
from rich.console import Console
from torch import Tensor, nn

from tests.conftest import log_of, newest_files
from xskill.engine.checkpoint import Better
from xskill.engine.config import Device, LoopConfig
from xskill.engine.distributed import share
from xskill.engine.loop import Batch, Hot, Step, learning_rate, train
from xskill.engine.seeds import generator, seed_everything
from xskill.errors import ConfigError, Interrupted, RunError

DEBUG = ExampleConfig(
    batch_size=8, clips=256, frames=4, image_size=16, width=4,
    loop=LoopConfig(
        steps=60, learning_rate=1e-3, warmup_steps=5, clip_norm=1.0, ema_decay=0.99, log_every=1, checkpoint_every=10
    ),
)  # fmt: skip
LOOP = replace(DEBUG.loop, steps=12, checkpoint_every=5)
NO_GPU = not torch.cuda.is_available()


class LinePhase:
    """Fits a line; small enough to be followed by hand."""

    name = "line"
    monitor = "error"
    better: Better = "min"
    settled = 0

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module: nn.Module = nn.Linear(2, 1)
        self.hot: Sequence[Hot] = [(self.module, "forward")]
        self.types: set[torch.dtype] = set()
        self.trained: list[list[int]] = []
        self.evaluated: list[nn.Module] = []
        self.losses = self.updates = 0

    def batch(self, step: Step) -> Batch:
        ids = torch.randint(1000, (4,), generator=step.generator("ids"))
        self.trained.append(ids.tolist())
        return {"ids": ids, "x": torch.randn(4, 2, generator=step.generator("x"))}

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        self.losses += 1
        predicted = module(batch["x"])
        self.types.add(predicted.dtype)
        return (predicted - batch["x"].sum(1, keepdim=True)).square().mean(), {}

    def updated(self) -> None:
        self.updates += 1

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        assert not module.training
        assert not torch.is_grad_enabled()
        self.evaluated.append(module)
        torch.rand(7)  # evaluation may draw as it likes
        return {"error": float((module.weight - 1).abs().sum())}


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_the_loop_is_the_textbook_one(tmp_path: Path) -> None:
    """Adam, warm-up, cosine, clipping and the moving average, against the same written out plainly."""
    config = LoopConfig(
        steps=25, optimizer="adam", learning_rate=0.1, schedule="cosine", warmup_steps=5, clip_norm=0.5,
        ema_decay=0.9, ema_power=0.6, checkpoint_every=25,
    )  # fmt: skip
    phase, plain = LinePhase(), LinePhase()
    best = train(phase, config, seed=3, folder=tmp_path, device="cpu", console=quiet())

    optimizer = torch.optim.Adam(plain.module.parameters(), lr=0.1)
    average = copy.deepcopy(plain.module)
    for index in range(25):
        warm, done = (index + 1) / 5, (index - 5) / 20
        optimizer.param_groups[0]["lr"] = 0.1 * (warm if index < 5 else 0.5 * (1 + math.cos(math.pi * done)))
        loss, _ = plain.loss(plain.module, plain.batch(Step(3, "line", index)), Step(3, "line", index))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.module.parameters(), 0.5)
        optimizer.step()
        decay = min(0.9, 1 - (1 + index) ** -0.6) if index else 0.0
        for mean, current in zip(average.parameters(), plain.module.parameters(), strict=True):
            mean.data.mul_(decay).add_(current.data, alpha=1 - decay)

    for name, tensor in safetensors.torch.load_file(best.weights).items():
        torch.testing.assert_close(tensor, average.state_dict()[name])
    for name, tensor in phase.module.state_dict().items():
        torch.testing.assert_close(tensor, plain.module.state_dict()[name])
    assert phase.trained == plain.trained
    assert phase.evaluated[0] is not phase.module  # the moving average is what is judged


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    config = LoopConfig(steps=110, learning_rate=1.0, schedule="cosine", warmup_steps=10)
    rates = [learning_rate(config, index) for index in range(110)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == 1.0
    assert rates[60] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.001
    assert {learning_rate(replace(config, schedule="constant"), index) for index in range(10, 110)} == {1.0}


@pytest.mark.parametrize("precisions", [("fp32", "bf16"), ("bf16", "fp32")])
def test_bf16_computes_in_bf16_and_hands_out_fp32(
    tmp_path: Path, precisions: tuple[Literal["fp32", "bf16"], ...]
) -> None:
    for precision in precisions:  # in both orders: nothing of one run's precision is left for the next
        phase = LinePhase()
        inside: list[torch.dtype] = []
        inner = nn.Linear(2, 2)
        inner.register_forward_hook(lambda _module, _in, out, inside=inside: inside.append(out.dtype))
        phase.module = nn.Sequential(inner, phase.module)
        phase.evaluate = lambda module: {"error": 0.0}
        train(
            phase,
            LoopConfig(steps=2, precision=precision),
            seed=0,
            folder=tmp_path / precision,
            device="cpu",
            console=quiet(),
        )
        assert set(inside) == {torch.bfloat16 if precision == "bf16" else torch.float32}
        assert phase.types == {torch.float32}


@pytest.mark.slow
@pytest.mark.parametrize("settled", [0, 3])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(NO_GPU, reason="no GPU"))])
def test_steps_played_back_are_those_done_piece_by_piece(tmp_path: Path, device: Device, settled: int) -> None:
    for replay in (False, True):
        config, phase = replace(LOOP, replay=replay, schedule="cosine"), ExamplePhase(replace(DEBUG, dropout=0.2), 0)
        phase.settled = settled
        train(phase, config, seed=0, folder=tmp_path / str(replay), device=device, console=quiet())
    for piecewise, played in zip(log_of(tmp_path / "False"), log_of(tmp_path / "True"), strict=True):
        assert piecewise == pytest.approx(played, rel=1e-4)


def test_nothing_of_a_step_is_held_during_the_next(tmp_path: Path) -> None:
    alive: list[weakref.ref[Tensor]] = []

    class Watched(LinePhase):
        def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
            assert not any(tensor() is not None for tensor in alive)
            loss, _ = super().loss(module, batch, step)
            part = 2 * loss
            alive[:] = [weakref.ref(loss), weakref.ref(part)]
            return loss, {"part": part}

    train(Watched(), LoopConfig(steps=4), seed=0, folder=tmp_path, device="cpu", console=quiet())
    assert len(alive) == 2


def test_a_compiled_network_learns_the_same(tmp_path: Path) -> None:
    for compiled in (False, True):
        config = LoopConfig(steps=5, compile=compiled, learning_rate=0.1, log_every=1)
        train(LinePhase(), config, seed=0, folder=tmp_path / str(compiled), device="cpu", console=quiet())
    for eager, compiled_ in zip(log_of(tmp_path / "False"), log_of(tmp_path / "True"), strict=True):
        assert eager == pytest.approx(compiled_, rel=1e-4)


@pytest.mark.parametrize("ema_decay", [0.0, 0.99])
def test_evaluation_does_not_disturb_training(tmp_path: Path, ema_decay: float) -> None:
    for every in (1, 12):
        loop = replace(LOOP, checkpoint_every=every, ema_decay=ema_decay)
        train(ExamplePhase(DEBUG, 0), loop, seed=0, folder=tmp_path / str(every), device="cpu", console=quiet())
    files = [newest_files(tmp_path / str(every)) for every in (1, 12)]
    assert files[0] == files[1]


def test_the_log_has_every_due_step_and_its_evaluations(tmp_path: Path) -> None:
    loop = replace(LOOP, log_every=4)
    train(ExamplePhase(DEBUG, 0), loop, seed=0, folder=tmp_path, device="cpu", console=quiet())
    records = log_of(tmp_path)
    assert [record["step"] for record in records] == [4, 5, 8, 10, 12]
    assert ["held_out_accuracy" in record for record in records] == [False, True, False, True, True]
    assert all({"loss", "gradient_norm", "learning_rate", "accuracy"} <= set(record) for record in records)


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        train(ExamplePhase(DEBUG, seed), LOOP, seed=seed, folder=tmp_path / name, device="cpu", console=quiet())
    a, b, c = (newest_files(tmp_path / name) for name in "abc")
    assert a == b
    assert all(a[name] != c[name] for name in a if name.endswith("safetensors"))


def test_a_resumed_loop_passes_over_damage_and_says_so(tmp_path: Path) -> None:
    loop = replace(LOOP, keep_last=3)
    train(ExamplePhase(DEBUG, 0), loop, seed=0, folder=tmp_path, device="cpu", console=quiet())
    straight = newest_files(tmp_path)
    for step in (10, 12):
        damaged = tmp_path / "checkpoints" / f"step-{step:08d}" / "training" / "optimizer.safetensors"
        damaged.write_bytes(damaged.read_bytes()[:-1])
    console = quiet()
    train(ExamplePhase(DEBUG, 0), replace(loop, keep_last=1), seed=0, folder=tmp_path, device="cpu", console=console)
    said = "".join(console.file.getvalue().split())
    assert said.count("passedoveradamagedcheckpoint") == 2
    assert re.search(r"goingonfrom\S*step-00000005", said)
    assert newest_files(tmp_path) == straight
    assert len(list((tmp_path / "checkpoints").glob("damaged-step-*"))) == 2


def test_weights_that_evaluate_to_no_number_are_not_saved(tmp_path: Path) -> None:
    class Worsening(LinePhase):
        def evaluate(self, module: nn.Module) -> Mapping[str, float]:
            return {"error": 1.0 if len(self.trained) < 5 else math.nan}

    config = LoopConfig(steps=20, checkpoint_every=2)
    with pytest.raises(RunError, match=r"not finite at step 4 .*error nan.*last good checkpoint is .*step-00000002"):
        train(Worsening(), config, seed=0, folder=tmp_path, device="cpu", console=quiet())
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


def test_asked_to_stop_at_the_very_last_step_it_stops_and_can_be_finished(tmp_path: Path) -> None:
    phase = LinePhase()
    config = LoopConfig(steps=4)

    def stop() -> bool:
        return phase.losses == 4

    with pytest.raises(Interrupted, match="after step 4 of 4"):
        train(phase, config, seed=0, folder=tmp_path, device="cpu", console=quiet(), stop=stop)
    assert train(LinePhase(), config, seed=0, folder=tmp_path, device="cpu", console=quiet()).step == 4


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_evaluation_has_the_precision_of_training(tmp_path: Path, ema_decay: float) -> None:
    seen: list[torch.dtype] = []

    class Watching(LinePhase):
        def __init__(self) -> None:
            super().__init__()
            inner = nn.Linear(2, 2)
            inner.register_forward_hook(lambda module, _, out: None if module.training else seen.append(out.dtype))
            self.module = nn.Sequential(inner, self.module)

        def evaluate(self, module: nn.Module) -> Mapping[str, float]:
            assert module(torch.ones(1, 2)).dtype == torch.float32
            return {"error": 0.0}

    config = LoopConfig(steps=2, precision="bf16", ema_decay=ema_decay)
    train(Watching(), config, seed=0, folder=tmp_path, device="cpu", console=quiet())
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_anything_is_saved(tmp_path: Path, bad: float) -> None:
    class Breaking(LinePhase):
        def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
            loss, metrics = super().loss(module, batch, step)
            return (loss * bad if len(self.trained) == 8 else loss), metrics

    phase = Breaking()
    with pytest.raises(RunError, match=r"not finite at step 8 .*the last good checkpoint is .*step-00000006") as error:
        train(phase, LoopConfig(steps=20, checkpoint_every=2), seed=0, folder=tmp_path, device="cpu", console=quiet())
    assert f"batch ids {', '.join(map(str, phase.trained[7]))}" in str(error.value)
    weights = safetensors.torch.load_file(tmp_path / "checkpoints/step-00000006/pretrained/model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_the_global_batch_is_shared_out_whole() -> None:
    phase = ExamplePhase(ExampleConfig(batch_size=12), 0)
    whole = phase.batch(Step(0, "example", 5))
    for world in (1, 2, 3, 4):
        parts = [share(whole, rank, world) for rank in range(world)]
        for name, tensor in whole.items():
            assert torch.equal(torch.cat([part[name] for part in parts]), tensor)
            assert {len(part[name]) for part in parts} == {12 // world}
    with pytest.raises(ConfigError, match=r"a batch of 12 .* cannot be shared evenly by 5 processes"):
        share(whole, 0, 5)


def test_streams_are_pure_functions_of_their_key() -> None:
    def draw(*key: int | str) -> tuple[float, ...]:
        return tuple(torch.rand(3, generator=generator(*key)).tolist())

    keys = [(0, "a", 1), (0, "a", 2), (1, "a", 1), (0, "b", 1), (0, "a", 11), (0, "a", "1")]
    assert len({draw(*key) for key in keys}) == len(keys)
    seed_everything(5)
    first = draw(0, "a", 1)
    seed_everything(6)
    assert draw(0, "a", 1) == first


def test_the_example_phase_learns(tmp_path: Path) -> None:
    config = ExampleConfig(image_size=16, width=8, loop=LoopConfig(steps=200, learning_rate=5e-3, checkpoint_every=50))
    best = train(ExamplePhase(config, 0), config.loop, seed=0, folder=tmp_path, device="cpu", console=quiet())
    accuracy = best.metrics["held_out_accuracy"]
    assert accuracy is not None
    assert accuracy > 0.5  # chance is an eighth
