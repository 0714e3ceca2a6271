"""How good do the two models of the last notebook get? `python -m benchmarks.quality [--tier smoke] [--out FILE]`

Each is trained as the notebook trains it, several times with other seeds, from the parts that `mine` finds. The
translator is judged by sentences that it never saw, three kinds of them, and by where it looked. The language model
stands beside what compressors need for the same text, and beside a twin of its size that reads single bytes and sees
as many tokens.
"""

import argparse
import datetime
import statistics
import tempfile

from benchmarks.kept import keep
from benchmarks.training import byte_stream
from utils import measure
from utils.data import python_source, token_stream, translation
from utils.measure.parts import part
from utils.train import Language, Translation, fit, settings

LOOKED_AT = 300  # sentences of which the alignment and BLEU are taken


def trained(config, task):
    """A finished Run; its folder is gone."""
    with tempfile.TemporaryDirectory() as folder:
        return fit(config, task, out=folder, resume=False, watch=False)


def costs(run):
    return {key: run.report[key] for key in ("parameters", "tokens", "train_cpu_seconds", "train_seconds")}


def translator(config):
    """Track A: shares of sentences that are right word for word, BLEU, and shares of gold alignments found."""
    corpus = translation.corpus(n_pairs=config.n_pairs, seed=0)
    run = trained(config, Translation(corpus, config))
    pairs = corpus.tests["iid"][:LOOKED_AT]
    align, _ = part("alignment_from_attention")
    rates = measure.alignment_rate(run.model, corpus, pairs, align=align)
    said = measure.translate(run.model, corpus, pairs)
    shares = {name: round(one.share, 4) for name, one in measure.exact_match(run, corpus).items()}
    return {
        **{f"exact match, {name}": share for name, share in shares.items()},
        "BLEU": round(measure.bleu(said, [pair.target for pair in pairs]), 2),
        "alignment, last layer": round(rates[-1], 4),
    } | costs(run)


def language(config, source):
    """Track B and its twin that reads bytes: bits per byte of the same held-out files."""
    functions = {name: part(name)[0] for name in ("bpe_train", "bpe_encode")}
    stream = token_stream.tokenise(source, config.vocab_size, **functions)
    run = trained(config, Language(stream, config))
    bytewise = trained(config, Language(byte_stream(source), config))
    return {
        "bits per byte": round(run.report["bits_per_byte"], 4),
        "bits per byte, reading bytes": round(bytewise.report["bits_per_byte"], 4),
    } | costs(run)


def summary(rows):
    """{measure: {"mean", "from" the lowest "to" the highest}} over the seeds."""
    return {
        key: {
            "mean": round(statistics.fmean(row[key] for row in rows), 4),
            "from": min(row[key] for row in rows),
            "to": max(row[key] for row in rows),
        }
        for key in rows[0]
    }


def main(arguments=None):
    """Train, print, and with --out write the json."""
    parser = argparse.ArgumentParser("python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--tier", default="smoke")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="other than the tier's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", help="also write the numbers there, as json")
    options = parser.parse_args(arguments)
    source = python_source.find(settings("b", options.tier).scope)
    rows = {"translator": [], "language": []}
    for seed in range(options.seeds):
        chosen = dict(tier=options.tier, seed=seed, steps=options.steps, device=options.device)
        for name, row in (
            ("translator", translator(settings("a", **chosen))),
            ("language", language(settings("b", **chosen), source)),
        ):
            rows[name].append(row)
            print(f"{name}, seed {seed}: " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    result = {"date": datetime.date.today().isoformat(), **measure.described(measure.device_of(options.device))}
    result |= {"tier": options.tier, "seeds": options.seeds, "text": source.fingerprint[:16]}
    result |= {name: summary(found) for name, found in rows.items()}
    result["compressors"] = {name: round(bits, 4) for name, bits in measure.compressors(source).items()}
    print("compressors: " + "  ".join(f"{name} {bits}" for name, bits in result["compressors"].items()))
    keep(result, options.out)
    return result


if __name__ == "__main__":
    main()
