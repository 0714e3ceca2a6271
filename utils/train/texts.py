"""The text of a run: the course's own, or a real corpus by name where there is a network."""

import torch

from utils.train.errors import TrainError
from utils.train.parts import take
from utils.train.tasks import Language, Translation


def task_of(config, cache=None, say=print):
    """The Task of a config. cache: a folder for the tokens of track b. say: a function for lines of text.

    A real corpus that cannot be had is said in one line, and the course's own text is taken.
    Raises TrainError for a text that is empty or does not fit.
    """
    from utils.data import CorpusError

    try:
        return _translation(config, say) if config.track == "a" else _language(config, cache, say)
    except CorpusError as error:
        raise TrainError(str(error)) from error


def _translation(config, say):
    from utils.data import real, translation

    pairs = _real(config, say)
    if pairs is not None and not isinstance(pairs, list):
        raise TrainError(f"{config.corpus} is no corpus of translations; it goes with track b")
    corpus = translation.corpus(n_pairs=config.n_pairs) if pairs is None else real.translation_corpus(pairs)
    say(f"Text: {len(corpus.train):,} pairs, sha256 {corpus.fingerprint[:16]}")
    return Translation(corpus.to(torch.device(config.device)), config)


def _language(config, cache, say):
    from utils.data import python_source, token_stream

    source = _real(config, say)
    if isinstance(source, list):
        raise TrainError(f"{config.corpus} is a corpus of translations; it goes with track a")
    source = source or python_source.find(scope=config.scope)
    say(f"Text: {source}")
    bpe = {name: take(name, quiet=say is not print)[0] for name in ("bpe_train", "bpe_encode")}
    stream = token_stream.tokenise(source, config.vocab_size, cache=cache, **bpe)
    say(f"Tokens: {len(stream.train):,} to train on, cut by {stream.made_by}. {stream.note}".rstrip())
    task = Language(stream.to(torch.device(config.device)), config)
    task.note = f"{source.note}; tokens cut by {stream.made_by}. {stream.note}".rstrip()
    return task


def _real(config, say):
    """The corpus that was asked for, or None."""
    if not config.corpus:
        return None
    from utils.data import real

    try:
        return real.load(config.corpus)
    except real.CorpusUnavailable as error:
        say(f"… {error}")
        return None
