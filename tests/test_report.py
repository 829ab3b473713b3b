"""`xskill report`: one page, whatever state the run is in."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from xskill.engine.folder import fingerprint
from xskill.errors import RunError
from xskill.report import POINTS, Report, _lasted, _thinned, report

VOID = {"meta", "img", "path", "polyline", "circle"}


class Checker(HTMLParser):
    """Complains about a tag that is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def training(folder: Path, steps: int = 3) -> Path:
    (folder / "discover").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"xskill": "0", "preset": "debug", "config": {"seed": 7, "note": "<b>&"}})
    )
    lines = [json.dumps({"step": step, "time": 60.0 * step, "loss": 1 / step}) for step in range(1, steps + 1)]
    lines.insert(1, json.dumps({"step": 1, "time": 60.0, "loss": float("nan"), "recall_sphere": 0.5}))
    (folder / "discover/log.jsonl").write_text("\n".join([*lines, '{"step": 9, "lo']))
    (folder / "discover/measures.json").write_text('{"recall_sphere": 0.5, "empty": null}')
    return folder


def scores(folder: Path, model: Path, weights: str = "1") -> Path:
    manifest = {"files": {"weights": weights}}
    model.mkdir(parents=True)
    (model / "manifest.json").write_text(json.dumps(manifest))
    for name in ("xskill-1", "xskill-2"):
        (folder / f"videos/{name}").mkdir(parents=True)
        (folder / f"videos/{name}/first.mp4").write_bytes(b"video" if name == "xskill-1" else b"of another model")
    (folder / "table.md").write_text(
        "|  | same x1 |\n| --- | --- |\n| **XSkill** | **84.4** (77 to 92) |\n\nOurs < theirs\n"
    )
    models = [{"path": str(model), "fingerprint": fingerprint(manifest)}]
    about = {"suite": "table1", "models": models, "records": ["xskill-1"]}
    (folder / "table.json").write_text(json.dumps({"about": about}))
    return folder


def page(folder: Path, **options: object) -> tuple[str, str]:
    report(Report(folder, **options))
    text = (folder / "report.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open in (["html", "body"], ["html"], [])
    assert set(re.findall(r"(?:src|href|url)\W*(\w+:)", text)) <= {"data:"}  # nothing is fetched
    return text, " ".join(checker.text)


def test_a_training_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    text, words = page(training(tmp_path / "run"))
    assert "loss: 0.3333 in the end" in words
    assert text.count("<polyline") == 1  # one curve
    assert text.count("<circle") == 1  # and one number
    assert "not begun" in words  # transfer
    assert "3 steps" in words
    assert "<b>&" in words  # as it was written, not as markup
    assert "Scores" not in words


def test_scores_of_its_model_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = training(tmp_path / "run")
    scores(tmp_path / "runs/eval/table1", run / "model")
    scores(tmp_path / "runs/eval/other", tmp_path / "another/model")
    text, words = page(run)
    assert words.count("table1") == 1
    assert "<td><b>84.4</b> (77 to 92)</td>" in text
    assert "Ours < theirs" in words
    assert text.count("data:video/mp4;base64,") == text.count("data:video/mp4;base64,dmlkZW8=") == 1
    (run / "model/manifest.json").write_text('{"files": {"weights": "trained anew"}}')
    assert "84.4" not in page(run)[0]
    (tmp_path / "runs/eval/table1/table.md").unlink()
    page(run)
    with pytest.raises(RunError, match=r"nowhere has no table\.md"):
        report(Report(run, scores=(tmp_path / "nowhere",)))


def test_what_is_damaged_costs_no_other_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = training(tmp_path / "run")
    scores(tmp_path / "runs/eval/table1", run / "model")
    (tmp_path / "runs/eval/broken").mkdir()
    (tmp_path / "runs/eval/broken/table.md").write_text("| a |")
    (tmp_path / "runs/eval/broken/table.json").write_text('{"about": {"models": [5, "x"]}}')
    (run / "discover/measures.json").write_text("{")
    _, words = page(run)
    assert "skills of run cannot be read (JSONDecodeError" in words
    assert "loss: 0.3333 in the end" in words
    assert f"Scored: {run}/model" in words
    (tmp_path / "runs/eval/table1/table.md").write_bytes(b"\xff\xfe\x00")
    _, words = page(run)
    assert "scores cannot be read" in words
    with pytest.raises(RunError, match=r"a page's name ends in \.html"):
        report(Report(run, out=run / "config.json"))


def test_a_sweep_has_one_page_for_all_its_trainings(tmp_path: Path) -> None:
    training(tmp_path / "sweep/xskill-0")
    training(tmp_path / "sweep/blind-0", steps=5)
    scores(tmp_path / "sweep/table1", tmp_path / "sweep/xskill-0/model")
    text, words = page(tmp_path / "sweep")
    assert "xskill-0" in words
    assert "blind-0" in words
    assert text.count("<polyline") == 2
    assert "table1" in words
    for index in range(12):
        training(tmp_path / f"sweep/more-{index}")
    training(tmp_path / "sweep/.aside-0")
    assert page(tmp_path / "sweep")[0].count("<polyline") == 14
    with pytest.raises(RunError, match=r"there is no training in .*: neither it nor a folder in it has a config\.json"):
        report(Report(tmp_path))


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    points = [(float(step), 0.0) for step in range(1001)]
    kept = _thinned(points)
    assert len(kept) <= POINTS
    assert kept[-1] == points[-1]
    assert _thinned(points[:5]) == points[:5]


def test_a_night_between_two_records_is_no_training() -> None:
    assert _lasted([0.0, 2.0, 4.0, 30_000.0, 30_002.0]) == 8.0
    assert _lasted([5.0]) == _lasted([]) == 0.0


def test_an_episode_has_a_page_of_its_own(tmp_path: Path) -> None:
    told = {
        "asked": ["light", "slide"], "completed": [["light", 25], ["hinge", 50]], "score": 0.5, "success": False,
        "undone": ["light", 30], "redone": None, "fps": 12.5, "decisions": [{"seconds": 0.04}],
    }  # fmt: skip
    (tmp_path / "episode.json").write_text(json.dumps(told))
    _, text = page(tmp_path)
    for words in (
        "light, slide",
        "light 2.0 s slide not done (hinge, not asked for) 4.0 s",
        "50% of it",
        "usually in 40 ms",
    ):
        assert words in text
    assert "Somebody undid light after 2.4 s: not done again." in text
    (tmp_path / "episode.mp4").write_bytes(b"a film")
    with pytest.raises(RunError, match=r"a page's name ends in \.html"):
        report(Report(tmp_path, out=tmp_path / "episode.mp4"))
    assert (tmp_path / "episode.mp4").read_bytes() == b"a film"
    (tmp_path / "episode.json").write_text("[]")
    with pytest.raises(RunError, match="is no record of an episode"):
        report(Report(tmp_path))
