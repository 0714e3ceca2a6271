"""The report card: what was trained, on whose parts, on which machine, and how good it is, on one page to keep."""

import datetime
import json
from dataclasses import dataclass, field
from pathlib import Path

from utils import handed_in, plots
from utils.measure import card_page, ratios
from utils.measure.card_page import Picture, Section, Table, Tile
from utils.measure.clock import MeasureError
from utils.measure.costs import matrix_entries, model_config, training_traffic
from utils.measure.parts import part
from utils.measure.translation import alignment_rate, cross_attention, share_of, shares, translate
from utils.train.checkpoint import replace

TRACKS = {"a": "Translator, English to Spanish", "b": "Language model of Python source"}
GOALS = {"iid": 0.99, "compositional": 0.95, "alignment": 0.90, "smoke bits": 2.6}
TESTS = {"iid": "unseen sentences", "compositional": "unseen pairs of words", "length": "longer than any in training"}
SHOWN, TRIED = 6, 300  # sentences on the page, sentences translated to choose them from


@dataclass
class Papers:
    """A run as the card needs it; `model` and `log` may be missing."""

    report: dict
    log: list = field(default_factory=list)
    model: object = None


@dataclass(frozen=True)
class Given:
    """What may be told besides: a corpus to ask model A with, compressors' bits, ceilings of the machine."""

    corpus: object = None
    rivals: dict | None = None
    peak: float | None = None
    bandwidth: float | None = None


def report_card(runs, path, corpus=None, rivals=None, peak=None, bandwidth=None, figures=()):
    """Write the page to `path` and return that Path.

    runs       Run objects, folders of runs, or report dicts
    corpus     of track A: then the translator is asked again, and its attention looked at
    rivals     {name: bits per byte}; peak, bandwidth: of this machine, per second
    figures    further (title, Figure, what it shows in words)
    Raises MeasureError where a run cannot be read, or something else than an earlier card lies at `path`.
    """
    found, given = [_papers(run) for run in runs], Given(corpus, rivals, peak, bandwidth)
    if not found:
        raise MeasureError("a report card needs at least one run")
    path = Path(path)
    if path.exists() and card_page.MARK not in path.read_text("utf8", errors="replace"):
        raise MeasureError(f"{path} is no report card; it was left as it is. Choose another name")
    sections = [part for papers in found for part in _sections(papers, given)]
    sections += [_whose(found)]
    sections += [Section(title, pictures=[Picture(figure, alt)]) for title, figure, alt in figures]
    sections += [_fine_print(found)]
    html = card_page.page("Report card", _head(found), [tile for p in found for tile in _tiles(p)], sections)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, html.encode())
    except OSError as error:
        raise MeasureError(f"the card could not be written to {path}: {error.strerror or error}") from error
    return path


# ---- what is there -------------------------------------------------------------------------------


def _papers(run):
    if isinstance(run, dict):
        return Papers(run)
    if hasattr(run, "report"):
        return Papers(run.report, list(run.log), run.model)
    folder = Path(run)
    try:
        report = json.loads((folder / "report.json").read_text("utf8"))
        rows = (folder / "log.jsonl").read_text("utf8").splitlines() if (folder / "log.jsonl").is_file() else []
        return Papers(report, [json.loads(row) for row in rows if row.strip()], _stored_model(folder, report))
    except (OSError, ValueError) as error:
        raise MeasureError(f"there is no report of a finished run in {folder}: {error}") from error


def _stored_model(folder, report):
    from utils.train import weights

    path = folder / handed_in.FILE
    return weights.twin(path) if path.is_file() and report.get("weights_stored") else None


def _head(found):
    first = found[0].report
    machine = f"{first.get('device', 'an unknown device')}, torch {first.get('versions', {}).get('torch', '?')}"
    return f"{first.get('date') or datetime.date.today()} · {machine}"


def _tiles(papers):
    report = papers.report
    if report.get("exact_match") is not None:
        right, goal = report["exact_match"], GOALS["iid"]
        yield Tile(f"{right:.1%}", "of unseen sentences translated word for word", right >= goal, f"goal {goal:.0%}")
    if report.get("bits_per_byte") is not None:
        bits, goal = report["bits_per_byte"], GOALS["smoke bits"]
        smoke = report.get("tier") == "smoke"
        yield Tile(f"{bits:.2f}", "bits per byte of unseen Python", bits < goal if smoke else None,
                   f"goal below {goal}" if smoke else "")  # fmt: skip
    if report.get("tokens_per_second"):
        track = report.get("track", "?").upper()
        yield Tile(f"{report['tokens_per_second']:,.0f}", f"tokens a second, track {track}", None, "")


# ---- a run ---------------------------------------------------------------------------------------


def _sections(papers, given):
    report = papers.report
    yield Section(
        TRACKS.get(report.get("track"), "A run"),
        lead=_sentence(report),
        tables=[_facts(report)],
        pictures=[_curve(papers)] if len(papers.log) > 1 else [],
    )
    if report.get("track") == "a":
        yield from _translator(papers, given)
    if report.get("track") == "b":
        yield from _language_model(papers, given)


def _sentence(report):
    size, seconds = report.get("parameters"), report.get("train_seconds")
    text = f"{size:,} parameters, " if size else ""
    text += f"{report.get('steps_done', 0):,} steps"
    text += f" in {seconds:,.0f} s of training" if seconds else ""
    return f"{text}. {'Stopped early: ' + report['stopped'] + '.' if report.get('stopped') else 'All steps were made.'}"


def _facts(report):
    keys = {"tier": "tier", "kernels": "kernels", "precision": "precision", "processes": "processes",
            "skipped_steps": "steps left out (not finite)", "memory_expected_mib": "memory expected for the run, MiB",
            "memory_peak_mib": f"memory held {report.get('memory_peak_is', '')}, MiB"}  # fmt: skip
    rows = [(name, _plain(report[key])) for key, name in keys.items() if report.get(key) is not None]
    if report.get("track") == "a":
        handed = "yes" if report.get("can_be_handed_in") else f"no: {report.get('why_not') or 'not said'}"
        rows.append(("weights can be handed in", handed))
    return Table("", ("", ""), rows)


def _plain(value):
    return f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _curve(papers):
    rows = [row for row in papers.log if row.get("loss") is not None]
    return Picture(plots.run_curve(rows), f"Loss over {rows[-1]['step']} steps, from {rows[0]['loss']:.2f} to "
                   f"{rows[-1]['loss']:.2f} nats a token.")  # fmt: skip


def _translator(papers, given):
    found = shares(papers.report, given.corpus) if given.corpus else {}
    scores = {TESTS.get(name, name): one for name, one in found.items()}
    if scores:
        told = "; ".join(f"{name}: {found}" for name, found in scores.items())
        lead = "The orange line is the range of true rates that so many sentences leave open (95 %)."
        yield Section("How many are right?", lead, pictures=[Picture(plots.exact_match_bars(scores), told)])
    if papers.model is None or given.corpus is None:
        return
    pairs = given.corpus.tests["iid"][:TRIED]
    said = translate(papers.model, given.corpus, pairs)
    if not scores:
        yield Section("How many are right?", f"Of the first {len(pairs)} unseen sentences: {_asked_now(pairs, said)}.")
    yield Section("What it says", tables=[_samples(pairs, said)])
    yield from _looks(papers, given.corpus, pairs)


def _asked_now(pairs, said):
    return share_of(sum(one == pair.target for one, pair in zip(said, pairs, strict=True)), len(pairs))


def _samples(pairs, said):
    """Wrong ones first, since they say more."""
    marks = ["✓" if one == pair.target else f"✗ {pair.target}" for pair, one in zip(pairs, said, strict=True)]
    rows = [(pair.source, one, mark) for pair, one, mark in zip(pairs, said, marks, strict=True)]
    wrong = [row for row in rows if row[2] != "✓"][: SHOWN // 2]
    right = [row for row in rows if row[2] == "✓"][: SHOWN - len(wrong)]
    return Table(f"From the first {len(pairs)} of the test; wrong ones, if there are any, first.",
                 ("English", "Spanish, as said", "right?"), [*wrong, *right])  # fmt: skip


def _looks(papers, corpus, pairs):
    """Where the last layer looked, and how often that was the right word."""
    align, whose = part("alignment_from_attention")
    if align is None:
        yield Section("Where it looked", lead=f"Not measured: {whose}.")
        return
    try:
        rates = alignment_rate(papers.model, corpus, pairs, align)
        shown = max(pairs[:50], key=lambda pair: len(pair.alignment))
        weights = cross_attention(papers.model, corpus, shown)[-1].mean(0)
    except MeasureError as error:
        yield Section("Where it looked", lead=f"Not measured: {error}.")
        return
    goal = GOALS["alignment"]
    by_layer = ", ".join(f"{rate:.1%}" for rate in rates)
    lead = (
        f"The last layer looked most at the right word for {rates[-1]:.1%} of those that carry meaning (goal "
        f"{goal:.0%}). Layer by layer: {by_layer}. Judged with {whose} alignment_from_attention."
    )
    alt = f"Cross-attention of the last layer for “{shown.source}”, a row for each Spanish word; gold pairs are framed."
    yield Section("Where it looked", lead=lead, pictures=[Picture(plots.alignment_map(weights, shown), alt)])


def _language_model(papers, given):
    bits = papers.report.get("bits_per_byte")
    if bits is not None:
        levels = {**(given.rivals or {}), "your model": bits}
        told = ", ".join(f"{name} {value:.2f}" for name, value in sorted(levels.items(), key=lambda pair: pair[1]))
        lead = "Compressors are the oldest rivals of a language model. One of smoke size loses to them, as expected."
        yield Section(
            "Bits per byte", lead=lead, pictures=[Picture(plots.bits_ladder(levels), f"Bits per byte: {told}.")]
        )
    yield Section("How fast, and out of how much?", tables=[speed_table(papers.report, given.peak, given.bandwidth)])


def speed_table(report, peak=None, bandwidth=None):
    """Rows of speed, cost and ratios; what was not measured says so."""
    rows = [("tokens a second", _plain(report.get("tokens_per_second") or "not measured"))]
    rows.append(("peak of this machine", f"{peak / 1e9:,.0f} GFLOP/s, measured" if peak else "not measured"))
    rows.append(("bandwidth", f"{bandwidth / 1e9:,.1f} GB/s, measured" if bandwidth else "not measured"))
    count, whose = part("flops_per_token")
    if count is None:
        return Table("", ("", ""), [*rows, ("operations a token", f"not computed: {whose}")])
    config, speed = model_config(report), report.get("tokens_per_second")
    costs = count(config, report["settings"]["seq_len"])
    rows.append(("entries of its matrices", f"{matrix_entries(config, count):,.0f}"))
    for convention, flops in costs.items():
        text = f"{flops / 1e6:,.2f} million"
        if peak and speed:
            text += f" · {ratios.compute(speed, flops, peak)}"
        rows.append((f"operations a token, {CONVENTIONS[convention]}", text))
    if peak and bandwidth and speed:
        found = ratios.roofline(speed, costs["causal"], peak, training_traffic(config), bandwidth)
        rows.append(("with the traffic of activations (bf16, estimated)", str(found)))
    return Table(f"Operations counted by {whose} flops_per_token.", ("", ""), rows)


CONVENTIONS = {"causal": "causal (half of the keys)", "palm": "PaLM's way (all keys)"}


# ---- all runs ------------------------------------------------------------------------------------


def _whose(found):
    """Which part ran in which run, and whose it was."""
    names = list(dict.fromkeys(name for papers in found for name in papers.report.get("parts", {})))
    heads = ["part", *(f"track {papers.report.get('track', '?').upper()}" for papers in found)]
    rows = [(name, *(papers.report.get("parts", {}).get(name, "–") for papers in found)) for name in names]
    lead = (
        "“yours”: found in your notebook, and it passes its check. “the course's”: yours was not finished, so this one "
        "was lent. torch's kernels run only where they were first found equal to the parts they stand in for."
    )
    return Section("Whose part ran where", lead=lead, tables=[Table("", tuple(heads), rows, badges=True)])


def _fine_print(found):
    rows = []
    for papers in found:
        report = papers.report
        track, text = report.get("track", "?").upper(), report.get("text", {})
        rows.append(
            (f"text of track {track}", f"sha256 {str(text.get('fingerprint'))[:16]}…, {text.get('units', 0):,} units")
        )
        rows.append((f"machine of track {track}", f"{report.get('device')}; {report.get('machine')}"))
        own = ", ".join(f"{name} {value}" for name, value in (report.get("settings") or {}).items())
        rows.append((f"settings of track {track}", own))
    lead = (
        "Written by your own run on your own machine, for you. Who grades does not read this page, but loads your "
        "weights and asks them new sentences."
    )
    return Section("Small print", lead=lead, tables=[Table("", ("", ""), rows)])
