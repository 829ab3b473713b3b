"""`xskill sweep`: a table's trainings and scores; what is there is not done again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import Command
from xskill import pipeline
from xskill.cli import main
from xskill.engine.folder import fingerprint, read_manifest
from xskill.engine.run import held
from xskill.evaluate.demo import SHIPPED
from xskill.jobs import Job, Sweep, lender_of
from xskill.presets import Config
from xskill.rows import SWEEPS
from xskill.sweep import _tables

ROWS = (
    "XSkill", "plan read by the clock", "XSkill, NN-compose", "XSkill, told what is done",
    "a transformer as aligner", "GCD policy", "GCD policy with TCN", "blind to its prompt",
    "the prompt's own actions replayed", "scripted expert, told the order",
)  # fmt: skip


TAKEN = ("table1", "--demos", "x", "--model", str(SHIPPED))


def rows_of(table: Path) -> list[str]:
    lines = (table / "table.md").read_text().splitlines()
    return [line.split("|")[1].strip(" *") for line in lines if line.startswith("| **")]


@pytest.mark.slow
def test_a_sweep_trains_scores_and_goes_on(xskill: Command, tmp_path: Path) -> None:
    few = "--discover.loop.steps 4 --transfer.loop.steps 4 --discover.loop.checkpoint-every 4"
    words = ("--demos", "puppets:8", "--preset", "debug", "--conditions", "0:1", "--device", "cpu", f"--train={few}")
    told, both = ("--rows", *ROWS), ("sweep", "table1", "perturb")
    first = xskill(*both, *words, *told, "--at-once", "2")
    assert first.returncode == 0, first.stderr
    out = tmp_path / "runs/sweep"
    # The blind one differs in transfer alone, so it has its skills from the other.
    logs = {name: (out / f"{name}-0.log").read_text() for name in ("xskill", "blind")}
    assert [log.count("discover: trained with this config already") for log in logs.values()] == [0, 1]
    tables = {name: (out / name / "table.md").read_text() for name in both[1:]}
    assert rows_of(out / "table1") == list(ROWS)
    compared = [line.split(":")[0] for line in tables["table1"].splitlines() if line.startswith("XSkill less")]
    assert compared == [f"XSkill less {row}" for row in ROWS[1:]]
    again = "scripted expert, told the order**: what was undone is done again"  # nobody else did anything
    assert rows_of(out / "perturb") == ["XSkill", "XSkill, told what is done", "scripted expert, told the order", again]
    assert "blind to its prompt" in (out / "report.html").read_text()
    configs = [json.loads((out / f"{name}-0/model/config.json").read_text()) for name in ("xskill", "blind")]
    assert [config["transfer"]["policy"]["blind"] for config in configs] == [False, True]
    weights = [load_file(out / f"{name}-0/model/transfer.safetensors") for name in ("xskill", "transformer")]
    policies = [{name: t for name, t in some.items() if name.startswith("policy.")} for some in weights]
    assert policies[0].keys() == policies[1].keys() != weights[0].keys() != weights[1].keys()
    assert all(torch.equal(tensor, policies[1][name]) for name, tensor in policies[0].items())
    records = {path.name: path.read_bytes() for path in (out / "records").glob("*.jsonl")}
    assert len(records) == len(ROWS) + 3

    kept = ("sweep", "aligners", *words, "--rows", "XSkill", "with spliced plans", "--out", "kept")
    beside = xskill(*kept, "--model", out / "xskill-0/model")  # which is not trained again
    assert beside.returncode == 0, beside.stderr
    assert beside.stdout.count("xskill train") == 1
    assert rows_of(tmp_path / "kept/aligners") == ["XSkill", "with spliced plans"]
    first_row = (tmp_path / "kept/aligners/table.md").read_text().splitlines()[2]
    assert first_row == tables["table1"].splitlines()[2]
    manifest = json.loads((tmp_path / "kept/aligner-with-spliced-plans-0/model/manifest.json").read_text())
    assert manifest["base"]["key"] == fingerprint(read_manifest(out / "xskill-0/model"))
    shutil.copytree(tmp_path / "kept/xskill-0", tmp_path / "other/xskill-0")  # as if it had been trained there
    (tmp_path / "other/xskill-0/model/manifest.json").write_bytes((out / "blind-0/model/manifest.json").read_bytes())
    instead = xskill(*kept[:-1], "other", "--model", out / "xskill-0/model").stderr
    assert "other/xskill-0 is there already, and is not " in instead
    taken = "`taken as it was trained`"
    assert f"kept/xskill-0 was trained with another train: {taken}, now `debug" in xskill(*kept).stderr
    theirs = ("sweep", "aligners", *words, "--rows", "XSkill", "--model", "kept/xskill-0/model")
    assert f"now {taken}; choose another --out" in xskill(*theirs).stderr

    for weights in [*out.rglob("*.safetensors"), *out.rglob("*.log"), *out.rglob("log.jsonl")]:
        weights.unlink()  # what has been scored is known without them, to other tables, too
    again = xskill(*both, *words, *told)
    assert again.returncode == 0, again.stderr
    assert "xskill train" not in again.stdout
    assert {name: (out / name / "table.md").read_text() for name in tables} == tables
    more = ("--seeds", "0", "1", "--as-is", "--out", out)  # a seed and a row that nobody has trained are left out
    as_is = xskill("sweep", "losses", "perturb", *words, *more)
    assert as_is.returncode == 0, as_is.stderr
    assert "not scored, and left out: alone-0 (table1), alone-1 (table1), " in as_is.stdout
    assert "xskill train" not in as_is.stdout
    assert rows_of(out / "losses") == ["XSkill"]
    assert (out / "perturb/table.md").read_text() == tables["perturb"]
    elsewhere = xskill("sweep", "losses", *words, "--suite", "perturb", "--rows", "XSkill")  # scored there already
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert (out / "losses-perturb/table.md").read_text().splitlines()[2] in tables["perturb"]
    (clock,) = (out / "records").glob("clock-*.jsonl")
    clock.rename(tmp_path / clock.name)  # one that is missing costs no other
    assert xskill("sweep", "table1", *words, *told, "--as-is").returncode == 0
    assert rows_of(out / "table1") == [row for row in ROWS if row != "plan read by the clock"]
    (tmp_path / clock.name).rename(clock)
    assert {path.name: path.read_bytes() for path in (out / "records").glob("*.jsonl")} == records

    nothing = xskill("sweep", "table1", *words, "--as-is", "--out", "nothing")
    assert (nothing.returncode, nothing.stderr) == (1, "xskill: nothing of table1 has been scored in nothing\n")
    stale = xskill("sweep", "table1", *words, *told, "--conditions", "0:2", "--as-is")  # though a table is there
    assert (stale.returncode, stale.stderr) == (1, "xskill: nothing of table1 has been scored in runs/sweep\n")

    other = xskill("sweep", "table1", *words, *told, "--seeds", "0", "--train=--transfer.loop.steps 5")
    assert other.returncode == 2
    assert (
        "runs/sweep/xskill-0 was trained with another train: `debug --seed 0 --discover.loop.steps 4 " in other.stderr
    )
    unseen = xskill("sweep", "table1", *words, "--rows", "XSkill", "--conditions", "0:2")
    assert unseen.returncode == 1
    assert "the weights of runs/sweep/xskill-0 are gone, and table1 needs them" in unseen.stderr
    (tmp_path / "begun/xskill-0/discover").mkdir(parents=True)  # and not come to its end
    spliced = ("aligners", *words, "--rows", "with spliced plans", "--out")
    for place, why in {
        "runs/sweep": "the weights of {0}/xskill-0 are gone",
        "no": "{0}/xskill-0 is not trained",
        "begun": "{0}/xskill-0 is not trained",
    }.items():
        lonely = xskill("sweep", *spliced, place)
        assert lonely.returncode == 1
        assert f"{why.format(place)}, and 'with spliced plans' needs them" in lonely.stderr

    bad = ("--train=--transfer.batch-size 0", "--rows", "XSkill", "--out", "bad")
    failing = xskill("sweep", "table1", *words[:-1], *bad)
    assert failing.returncode == 1
    assert "1 could not be trained or scored, their rows are missing: bad/xskill-0" in failing.stderr
    assert not list((tmp_path / "bad").glob("*.html"))  # nothing was trained, so there is nothing to show
    note = tmp_path / "kept/xskill-0/model/manifest.json"
    note.write_bytes((out / "blind-0/model/manifest.json").read_bytes())  # another model is there now
    moved = xskill(*kept, "--model", out / "xskill-0/model", "--as-is")
    assert "aligner-with-spliced-plans-0 has gone on from another model than the one in kept/xskill-0" in moved.stdout
    (tmp_path / "bad").mkdir(exist_ok=True)
    with held(tmp_path / "bad"):
        beside = xskill("sweep", "table1", *words[:-1], *bad)
    assert "is working in bad" in beside.stderr


@pytest.mark.slow
def test_an_interrupted_sweep_stops_its_trainings_with_a_checkpoint(tmp_path: Path) -> None:
    rows = ("--rows", "blind to its prompt", "told the robot's own skills only")  # neither needs another's skills
    many = "--discover.loop.steps 100000 --discover.loop.checkpoint-every 50000"
    words = ("sweep", "table1", "--demos", "puppets:8", "--preset", "debug", "--device", "cpu", f"--train={many}")
    process = subprocess.Popen([sys.executable, "-m", "xskill", *words, *rows, "--at-once", "2"], cwd=tmp_path)
    runs = [tmp_path / f"runs/sweep/{name}-0/discover" for name in ("blind", "alone")]
    deadline = time.monotonic() + 300
    while not all((run / "log.jsonl").exists() for run in runs):  # both train at the same time
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.2)
    (one,) = (path for path in Path("/proc").glob("[0-9]*") if started(path, tmp_path, "runs/sweep/blind-0"))
    os.kill(int(one.name), signal.SIGTERM)  # a training that somebody else stops costs no other
    while not list((runs[0] / "checkpoints").glob("step-*")) or one.exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(2)
    assert process.poll() is None
    assert not list((runs[1] / "checkpoints").glob("step-*"))  # one that nobody stops has none yet
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130
    for run in runs:
        assert len(list((run / "checkpoints").glob("step-*"))) == 1


@pytest.mark.slow
def test_what_a_sweep_has_started_ends_with_it_however_it_ends(tmp_path: Path) -> None:
    many = "--discover.loop.steps 100000 --discover.loop.checkpoint-every 50000"
    words = ("sweep", "table1", "--demos", "puppets:8", "--preset", "debug", "--device", "cpu", f"--train={many}")
    with subprocess.Popen([sys.executable, "-m", "xskill", *words, "--rows", "XSkill"], cwd=tmp_path) as process:
        run, deadline = tmp_path / "runs/sweep/xskill-0/discover", time.monotonic() + 300
        while not (run / "log.jsonl").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.2)
        process.kill()
    while not list((run / "checkpoints").glob("step-*")):  # as Ctrl-C would have left it
        assert time.monotonic() < deadline
        time.sleep(0.2)
    while any(started(path, tmp_path, "runs/sweep/xskill-0") for path in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def started(process: Path, folder: Path, word: str) -> bool:
    """Whether a process, given as its folder in /proc, was started in a folder with a word on its command line."""
    with suppress(OSError):
        return (process / "cwd").resolve() == folder.resolve() and word in (process / "cmdline").read_text().split("\0")
    return False


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("tabel1", "--demos", "x"), "there is no table 'tabel1' (did you mean 'table1'?)"),
        (("losses", "tabel1", "--demos", "x"), "there is no table 'tabel1' (did you mean 'table1'?)"),
        (("--demos", "x"), "name the table first, as in xskill sweep table1 --demos ..."),
        (("table1", "--demos", "x", "--rows", "nobody"), "table1 has no row 'nobody' (choose from 'XSkill', "),
        (("table1", "--demos", "x", "--seeds", "1", "1"), "name one or more, each once"),
        (("table1", "--demos", "x", "--train=--data.demos y"), "leave --data.demos out of --train"),
        (("table1", "--demos", "x", "--suite", "sene"), "there is no suite 'sene' (did you mean 'seen'?)"),
        ((*TAKEN, "--seeds", "0", "1"), "is one training, of seed 0; give --seeds 0"),
        (TAKEN, "'XSkill without prototype loss' does not go on from "),
        (("table1", "--demos", "x", "--suite", "validation"), "validation is for others than the paper's task, which "),
        (("validation", "--demos", "x", "--suite", "table1"), "table1 is about the paper's task, which 'unseen: "),
        (("table1", "--demos", "x", "--train=--data.unseen light slide"), "is about the paper's task, which 'XSkill' "),
        (("table1", "--demos", "x", "--at-once", "0"), "--at-once is 0; expected at least 1"),
        (("table1", "--demos", "x", "--conditions", "5"), "--conditions is '5'; it must be first:end"),
        (("table1", "--demos", "x", "--train='open"), '--train is "\'open": No closing quotation'),
    ],
)
def test_what_cannot_be_swept_is_one_sentence(
    words: tuple[str, ...], answer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == 2
    assert answer in capfd.readouterr().err


def test_skills_are_borrowed_where_trainings_differ_in_transfer_alone(tmp_path: Path) -> None:
    lenders = {
        row.name: lender and lender.name
        for name in ("table1", "headline", "paper")
        for row in SWEEPS[name][1]
        for lender in [lender_of(Job(2, row, tmp_path / f"{row.training}-2", {}))]
    }
    assert lenders["blind to its prompt"] == lenders["GCD policy"] == "xskill-2"
    assert lenders["paper-kitchen, counterparts"] == "paper-2"
    for own in ("XSkill", "XSkill without TC loss", "XSkill, Level 1", "paper-kitchen", "paper-kitchen, bodies paired"):
        assert lenders[own] is None


def test_nobody_tells_a_transformer_its_place() -> None:
    transformer = "--transfer.aligner.kind transformer"
    for preset, train, told in (
        ("kitchen", "", True), ("paper-kitchen", "", False), ("kitchen", transformer, False),
        ("kitchen", transformer.replace(" ", "="), False), ("paper-kitchen", "--transfer.aligner.kind=tracker", True),
    ):  # fmt: skip
        rows = _tables(["table1"], Sweep("x", preset=preset, train=train))["table1"]
        assert any(row.method == "told" for row in rows) == told
        assert any(row.method == "clock" for row in rows)


def test_nobody_replays_an_order_that_nobody_has_recorded() -> None:
    for suite, there in (("", True), ("seen", True), ("orders", False)):
        assert any(row.method == "replay" for row in _tables(["table1"], Sweep("x", suite=suite))["table1"]) == there


def test_every_row_is_a_training_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Config] = {}
    rows = {row.training: row for _, some in SWEEPS.values() for row in (row.resolved("kitchen") for row in some)}
    for row in rows.values():
        monkeypatch.setattr(
            pipeline, "run", lambda preset, config, *_, name=row.training, **__: found.update({name: config})
        )
        told = [] if "--data.demos" in row.words else ["--data.demos", "x"]
        assert main(["train", row.preset or "kitchen", *row.words, *told, "--out", "nowhere"]) == 0
    assert len(set(map(str, found.values()))) == len(found) == len(rows)
    assert found["k32"].discover.num_prototypes == 32
    assert (found["k512-level2"].discover.num_prototypes, found["k512-level2"].data.level) == (512, 2)
    assert found["no-prototype-loss"].discover.prototype_weight == found["no-time-loss"].discover.time_weight == 0
    assert found["gcd"].transfer.policy.ahead == found["gcd-tcn"].transfer.policy.ahead == 16


def test_tables_share_trainings_that_are_the_same_and_no_others() -> None:
    trained: dict[str, tuple[str, ...]] = {}
    for _, rows in SWEEPS.values():
        assert len({row.name for row in rows}) == len(rows)
        for row in (row.resolved("kitchen") for row in rows):
            assert trained.setdefault(row.training, (row.preset, *row.words)) == (row.preset, *row.words)
    assert len(set(trained.values())) == len(trained)
