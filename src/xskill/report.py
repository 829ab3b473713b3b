"""`xskill report`: what became of a training, a sweep or an episode, as one HTML page that needs nothing beside it."""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import tyro

from xskill.engine.config import unset
from xskill.engine.folder import fingerprint, json_lines, write_file
from xskill.engine.log import plain_console
from xskill.engine.run import read_config
from xskill.errors import RunError
from xskill.rows import SWEEPS
from xskill.version import exact_version

PHASES = ("discover", "transfer")
POINTS = 300
"""Points of a curve, at most."""
VIDEOS = 24_000_000
"""Bytes of videos in a page, at most; the others are named."""
WIDTH, HEIGHT, LEFT, BELOW = 330, 170, 62, 22
COLOURS = ("#3b76af", "#d9822b", "#519e3e", "#c0392b", "#8d6ab8", "#85594e", "#d57ebe", "#7f7f7f", "#bcbd22", "#2aa1b3")
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; }
.many { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; } figcaption { font-size: 13px; }
svg { display: block; } svg text { font-size: 11px; fill: currentColor; } img { max-width: 100%; background: white; }
pre { overflow: auto; max-height: 30rem; font-size: 12px; } .quiet { opacity: .7; }
"""


@dataclass(frozen=True)
class Report:
    """Make one HTML page of a training's or a sweep's curves, scores, pictures, videos and config.

    Of an episode, as `xskill compose` and `xskill demo` leave it, the page has its film, its timelines and its record.
    """

    run: tyro.conf.Positional[Path]
    """Folder of a training, of a sweep, or of an episode."""
    scores: Annotated[tuple[Path, ...], unset("those in RUN and runs/eval that scored its models")] = ()
    """Folders that `xskill eval` wrote."""
    out: Annotated[Path | None, unset("RUN/report.html")] = None
    """The page."""


def report(options: Report) -> None:
    """Do what the options say."""
    folder = options.run.expanduser()
    if options.out and options.out.suffix != ".html":
        raise RunError(f"--out is {options.out}; a page's name ends in .html")
    if (folder / "episode.json").is_file() and not (folder / "config.json").is_file():
        return _write(folder, options.out, _episode(folder))
    trainings = {folder.resolve().name: folder} if (folder / "config.json").is_file() else _trainings_in(folder)
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}")
    if not trainings:
        raise RunError(f"there is no training in {folder}: neither it nor a folder in it has a config.json")
    for scores in options.scores:
        if not (scores / "table.md").is_file():
            raise RunError(f"{scores} has no table.md; name a folder that `xskill eval` wrote")
    configs = {name: read_config(path / "config.json") for name, path in trainings.items()}
    logs = {
        name: {phase: list(json_lines(path / phase / "log.jsonl")) for phase in PHASES}
        for name, path in trainings.items()
    }
    alone = len(trainings) == 1
    parts: list[tuple[str, Callable[[], Iterable[str]]]] = [
        ("what was trained", partial(_head, folder, configs, logs)),
        ("scores", partial(_scores, options.scores or _scored(folder))),
        ("curves", partial(_curves, logs)),
        *((f"skills of {name}", partial(_skills, name, path, alone=alone)) for name, path in trainings.items()),
        ("configs", partial(_configs, configs, trainings)),
    ]
    _write(folder, options.out, (line for what, part in parts for line in _safe(what, part)))


def _safe(what: str, part: Callable[[], Iterable[str]]) -> list[str]:
    """A part of a page, or a word that its files cannot be read: one that is damaged costs no other."""
    try:
        return list(part())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        return [f"<p>{escape(what)} cannot be read ({escape(f'{type(error).__name__}: {error}')})</p>"]


def _write(folder: Path, named: Path | None, parts: Iterable[str]) -> None:
    title = escape(f"xskill: {folder.resolve().name}")
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
    page += "<meta name=viewport content='width=device-width'><body>" + "\n".join(parts) + "</body></html>\n"
    out = named.expanduser() if named else folder / "report.html"
    write_file(out, page.encode())
    plain_console().print(f"{out}: {len(page) / 1e6:.1f} MB")


def _made(folder: Path) -> str:
    now, where = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", escape(str(folder.resolve()))
    return f"<p class=quiet>Made with xskill {escape(exact_version())} on {now} from {where}</p>"


def _episode(folder: Path) -> Iterator[str]:
    """What was asked of the robot, what it did, and all there is to see of it."""
    try:
        told = json.loads((folder / "episode.json").read_bytes())
        done = dict(told["completed"])
        asked, seconds, rate = told["asked"], [d["seconds"] for d in told["decisions"]], told["fps"]
        yield f"<h1>{escape(', '.join(asked) or 'One prompt, one episode')}</h1>" + _made(folder)
        rows = [["asked for" if asked else "sub-task", "done by the robot after"]]
        rows += [[task, f"{done[task] / rate:.1f} s" if task in done else "not done"] for task in asked]
        besides = "({}, not asked for)" if asked else "{}"
        rows += [[besides.format(task), f"{step / rate:.1f} s"] for task, step in done.items() if task not in asked]
        yield _table(rows)
        if asked:
            verdict = "all of it" if told["success"] else f"{told['score']:.0%} of it"
            yield f"<p>Done in the order asked for: <b>{verdict}</b>.</p>"
        if told["undone"]:
            again = f"done again by {told['redone'] / rate:.1f} s" if told["redone"] else "not done again"
            yield f"<p>Somebody undid {escape(told['undone'][0])} after {told['undone'][1] / rate:.1f} s: {again}.</p>"
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunError(f"{folder / 'episode.json'} is no record of an episode: {error}") from error
    if (folder / "episode.mp4").is_file():
        yield "<h2>The prompt, and the robot</h2><p>The prompt is slowed down or sped up to last as long.</p>"
        yield _video(folder / "episode.mp4", 2 * WIDTH)
    yield "<h2>Skills</h2><p>A colour is a prototype. Below, where in its plan the robot believed to be.</p>"
    yield from _pictures(folder, {"timelines.png": "skills of the prompt and of the robot"})
    usual = f", usually in {1000 * median(seconds):.0f} ms" if seconds else ""
    yield f"<p class=quiet>{len(seconds)} decisions{usual}.</p>"
    yield f"<details><summary>episode.json</summary><pre>{escape(json.dumps(told, indent=1))}</pre></details>"


def _video(path: Path, width: int) -> str:
    source = f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return f"<video controls loop muted width={width} src='{source}'></video>"


def _pictures(folder: Path, about: Mapping[str, str]) -> Iterator[str]:
    for name, caption in about.items():
        if (folder / name).is_file():
            data = base64.b64encode((folder / name).read_bytes()).decode()
            yield f"<figure><img src='data:image/png;base64,{data}'><figcaption>{caption}</figcaption></figure>"


def _trainings_in(folder: Path) -> dict[str, Path]:
    found = sorted(path.parent for path in folder.glob("*/config.json"))
    return {path.name: path for path in found if not path.name.startswith(".")}


def _head(folder: Path, configs: Mapping[str, Any], logs: Mapping[str, Mapping[str, list[Any]]]) -> Iterator[str]:
    yield f"<h1>{escape(folder.resolve().name)}</h1>" + _made(folder)
    rows = [["training", "preset", "seed", *(f"{phase}, steps" for phase in PHASES), "minutes"]]
    for name, (preset, config) in configs.items():
        reached = [f"{log[-1]['step']:,}" if (log := logs[name][phase]) else "not begun" for phase in PHASES]
        lasted = sum(_lasted([record["time"] for record in log]) for log in logs[name].values())
        rows.append([name, preset, str(config.get("seed", "?")), *reached, f"{lasted / 60:.1f}"])
    yield _table(rows)


def _lasted(times: Sequence[float]) -> float:
    """Seconds of training; where it was stopped for a while, a usual gap between two records stands for that."""
    gaps = [after - before for before, after in pairwise(times)]
    usual = median(gaps) if gaps else 0.0
    return sum(gap if gap < 20 * usual + 60 else usual for gap in gaps)


def _scored(folder: Path) -> list[Path]:
    """Folders of scores about the models in `folder`, as they are now."""
    found = []
    inside = [*folder.glob("*/table.json"), *folder.glob("eval/*/table.json")]
    for table in dict.fromkeys(path.resolve() for path in [*inside, *Path("runs/eval").glob("*/table.json")]):
        models = {Path(str(one.get("path"))): one.get("fingerprint") for one in _models(table.parent)}
        ours = {path: scored for path, scored in models.items() if folder.resolve() in path.parents}
        if ours and all(_fingerprint(path) == scored for path, scored in ours.items()):
            found.append(table.parent)
    return found


def _about(scores: Path) -> dict[str, Any]:
    """What `xskill eval` says about a table."""
    try:
        about = json.loads((scores / "table.json").read_bytes())["about"]
        return about if (scores / "table.md").is_file() and isinstance(about, dict) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _models(scores: Path) -> list[dict[str, Any]]:
    """What is said there of the models that were scored."""
    models = _about(scores).get("models")
    return [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []


def _fingerprint(model: Path) -> str | None:
    try:
        return fingerprint(json.loads((model / "manifest.json").read_bytes()))
    except (OSError, ValueError, KeyError):
        return None


def _scores(folders: Sequence[Path]) -> Iterator[str]:
    if folders:
        yield "<h2>Scores</h2><p>Per cent of sub-tasks done in the prompt's order, where a row names nothing else.</p>"
    room = VIDEOS
    for folder in folders:
        about = _about(folder)
        name = folder.name if folder.name.split("-")[0] in SWEEPS else str(about.get("suite", folder.name))
        yield f"<h3>{escape(name)}</h3>"
        lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        yield _table([row for row in cells if set("".join(row)) != {"-"}])
        yield "".join(f"<p>{escape(line)}</p>" for line in lines if line and not line.startswith("|"))
        if named := ", ".join(str(one.get("path")) for one in _models(folder)):
            yield f"<p class=quiet>Scored: {escape(named)}</p>"
        videos, left_out = [], []
        for path in sorted(path for name in about.get("records", []) for path in folder.glob(f"videos/{name}/*.mp4")):
            if path.stat().st_size > room:
                left_out.append(str(path))
                continue
            room -= path.stat().st_size
            caption = escape(f"{path.parent.name}: {path.stem}")
            videos.append(f"<figure>{_video(path, WIDTH)}<figcaption>{caption}</figcaption></figure>")
        if videos:
            yield "<p>The prompt, and beside it what the robot made of it:</p>"
            yield f"<div class=many>{''.join(videos)}</div>"
        if left_out:
            yield f"<p class=quiet>Too large for this page: {escape(', '.join(left_out))}</p>"


def _curves(logs: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Iterator[str]:
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(logs)}
    dashes = {name: 4 * (index // len(COLOURS)) for index, name in enumerate(logs)}
    for phase in PHASES:
        every = {name: phases[phase] for name, phases in logs.items() if phases[phase]}
        if not every:
            continue
        yield f"<h2>{phase.capitalize()}</h2>"
        if len(every) > 1:
            yield "<p>" + " ".join(f"<b style='color:{colours[n]}'>{escape(n)}</b>" for n in every) + "</p>"
        names = dict.fromkeys(key for log in every.values() for record in log for key in record)
        charts = []
        for metric in (name for name in names if name not in ("step", "time")):
            lines = {n: [(r["step"], r[metric]) for r in log if _finite(r.get(metric))] for n, log in every.items()}
            lines = {name: _thinned(points) for name, points in lines.items() if points}
            if lines:
                last = [points[-1][1] for points in lines.values()]
                about = escape(metric.replace("_", " ")) + (f": {last[0]:.4g} in the end" if len(last) == 1 else "")
                charts.append(f"<figure>{_chart(lines, colours, dashes)}<figcaption>{about}</figcaption></figure>")
        yield f"<div class=many>{''.join(charts)}</div>"


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS` of them, the last included."""
    stride = -(-len(points) // POINTS)
    return list(points[::-1][::stride][::-1])


def _chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], colours: Mapping[str, str], dashes: Mapping[str, int]
) -> str:
    """Curves by name, as SVG."""
    xs, ys = ([point[axis] for points in lines.values() for point in points] for axis in (0, 1))
    (left, right), (low, high) = ((min(values), max(values)) for values in (xs, ys))
    wide, tall = (right - left) or 1, (high - low) or 1

    def place(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - 8) * (x - left) / wide
        return f"{across:.1f},{8 + (HEIGHT - BELOW - 8) * (1 - (y - low) / tall):.1f}"

    drawn = ""
    for name, points in lines.items():
        path, style = " ".join(place(*point) for point in points), f"stroke='{colours[name]}' fill=none"
        dash = f"stroke-dasharray={dashes[name]}" if dashes[name] else ""
        shape = f"<polyline points='{path}'/>"
        if len(points) == 1:
            across, down = path.split(",")
            shape = f"<circle r=3 cx={across} cy={down} />"
        drawn += f"<g {style} stroke-width=1.5 {dash}><title>{escape(name)}</title>{shape}</g>"
    floor = HEIGHT - BELOW
    return (
        f"<svg width={WIDTH} height={HEIGHT} role=img><path d='M{LEFT} 8V{floor}H{WIDTH - 8}' fill=none stroke=#888 />"
        f"<text x={LEFT - 5} y=14 text-anchor=end>{high:.4g}</text>"
        f"<text x={LEFT - 5} y={floor} text-anchor=end>{low:.4g}</text>"
        f"<text x={LEFT} y={HEIGHT - 6}>{left:,}</text>"
        f"<text x={WIDTH - 8} y={HEIGHT - 6} text-anchor=end>{right:,} steps</text>{drawn}</svg>"
    )


def _skills(name: str, folder: Path, *, alone: bool) -> Iterator[str]:
    """What discovery came to: its measures and pictures."""
    found = folder / "discover"
    if not (found / "measures.json").is_file():
        return
    yield "<h2>Skills</h2>" if alone else f"<details><summary>Skills of {escape(name)}</summary>"
    yield from _pictures(
        found, {"embedding.png": "skills of held-out videos", "prototypes.png": "prototypes over time"}
    )
    measures = json.loads((found / "measures.json").read_bytes())
    rows = [[key.replace("_", " "), f"{value:.4g}"] for key, value in measures.items() if _finite(value)]
    yield _table([["on held-out videos", ""], *rows])
    if not alone:
        yield "</details>"


def _configs(configs: Mapping[str, tuple[str, Mapping[str, Any]]], trainings: Mapping[str, Path]) -> Iterator[str]:
    yield "<h2>Config and versions</h2>"
    for name, (preset, config) in configs.items():
        about: dict[str, Any] = {"preset": preset, "config": config}
        manifest = trainings[name] / "model/manifest.json"
        if manifest.is_file():
            about["model"] = json.loads(manifest.read_bytes())
        text = escape(json.dumps(about, indent=1))
        yield f"<details><summary>{escape(name)}</summary><pre>{text}</pre></details>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head; **bold** as in Markdown."""
    head, *body = rows or [[]]
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{_bold(cell)}</td>' for cell in row)}</tr>" for row in body]
    return f"<div class=wide><table>{''.join(lines)}</table></div>"


def _bold(text: str) -> str:
    parts = escape(text).split("**")
    return "".join(f"<b>{part}</b>" if index % 2 else part for index, part in enumerate(parts))
