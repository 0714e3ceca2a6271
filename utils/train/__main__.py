"""`python -m utils.train --track a|b --out DIR [--tier smoke|laptop|t4|h100] [--model 10m|50m|124m]`

Every field of TrainConfig is an option. For many GPUs, or many processes on one CPU:
`torchrun --nproc-per-node=2 -m utils.train --track b --tier h100 --out DIR [--fsdp]`
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from utils.train import TrainConfig, TrainError, fit, many, settings, task_of
from utils.train.settings import KERNELS, MODELS, TIERS, TRACKS

CHOICES = {"track": TRACKS, "tier": TIERS, "kernels": KERNELS, "precision": ("auto", "fp32", "bf16", "fp16")}


def parser():
    """The options, derived from the fields of TrainConfig."""
    made = argparse.ArgumentParser("python -m utils.train", description=__doc__.splitlines()[0], allow_abbrev=False)
    made.add_argument("--out", required=True, help="the folder of the run; an earlier run there goes on")
    made.add_argument("--model", choices=tuple(MODELS), help="a named size of track b")
    made.add_argument("--anew", action="store_true", help="start anew; an earlier run moves to a folder earlier-N")
    made.add_argument("--quiet", action="store_true", help="print nothing but errors")
    for field in fields(TrainConfig):
        names = [f"--{field.name.replace('_', '-')}"]
        if "_" in field.name:
            names.append(f"--{field.name}")
        if field.type is bool:
            made.add_argument(*names, dest=field.name, action=argparse.BooleanOptionalAction, default=None)
        else:
            required = field.name == "track"
            made.add_argument(*names, type=field.type, choices=CHOICES.get(field.name), required=required)
    return made


def main(arguments=None):
    """The exit status: 0 all steps made, 3 stopped early and saved, 1 an error the reader can put right."""
    options = vars(parser().parse_args(arguments))
    out, anew, quiet = Path(options.pop("out")), options.pop("anew"), options.pop("quiet")
    first = True
    for stream in (sys.stdout, sys.stderr):  # a console that knows no ✓ shows a question mark
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        first = many.join()
        config = settings(options.pop("track"), options.pop("tier"), options.pop("model"), **options)
        say = print if first and not quiet else lambda *words: None
        task = many.in_turn(lambda: task_of(config, cache=out / "tokens", say=say))
        run = fit(config, task, out, resume=False if anew else "auto", watch=not quiet)
        return 0 if run.stopped is None else 3
    except TrainError as error:
        if first or many.alone():
            print(f"✗ {error}", file=sys.stderr)
        return 1
    finally:
        many.leave()


if __name__ == "__main__":
    sys.exit(main())
