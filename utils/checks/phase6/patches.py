"""patchify: a picture cut into tokens."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules
from utils.observe.codec import Fixture


def grid(images, size):
    """(batch, channels, rows, row in patch, columns, column in patch); whole patches only."""
    batch, channels, height, width = images.shape
    images = images[..., : height // size * size, : width // size * size]
    return images.reshape(batch, channels, height // size, size, width // size, size)


def refuse(images, size):
    if size < 1 or images.shape[2] % size or images.shape[3] % size:
        raise ValueError("patch_size must divide height and width")


def wrong(*order, merged=3):
    """A wrong twin: the axes of `grid` in another order; the first `merged` count patches."""

    def faulty(images, patch_size):
        refuse(images, patch_size)
        parts = grid(images, patch_size).permute(*order)
        sizes = parts.shape
        return parts.reshape(sizes[0], torch.Size(sizes[1:merged]).numel(), -1)

    return faulty


def run_of_pixels(images, patch_size):
    refuse(images, patch_size)
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


def run_of_all_channels(images, patch_size):
    """Channels first to the end, then cut as it comes."""
    refuse(images, patch_size)
    return images.permute(0, 2, 3, 1).reshape(len(images), -1, images.shape[1] * patch_size**2)


def whole_patches_only(images, patch_size):
    parts = grid(images, patch_size).permute(0, 2, 4, 1, 3, 5)
    return parts.flatten(3).flatten(1, 2)


def numbered(*shape):
    return given(lambda g, o: torch.randint(256, shape, generator=g).to(torch.uint8))


def turned(*shape):
    """An image whose last two axes lie exchanged in memory."""
    return Fixture("turned", dict(shape=list(shape)))


PHOTO = dict(images=(2, 3, 4, 10), patch_size=2)

register(
    expected=oracle.patchify,
    phase=PHASE,
    section="6.8",
    hint="split both sides into patches × patch_size; bring the two axes that count patches to the front.",
    bans=(),
    cases=(
        case("two pictures of 4 × 10, patches of 2", PHOTO),
        case("patches of 3", dict(images=(2, 5, 9, 6), patch_size=3)),
        case("one channel", dict(images=(3, 1, 6, 4), patch_size=2)),
        case("patches of 1", dict(images=(2, 3, 2, 5), patch_size=1)),
        case("one patch", dict(images=(2, 3, 4, 4), patch_size=4)),
        case("one row of patches", dict(images=(1, 2, 3, 12), patch_size=3)),
        case("one column of patches", dict(images=(1, 2, 12, 3), patch_size=3)),
        case("bytes", dict(images=numbered(2, 3, 4, 6), patch_size=2), grad=False),
        case("another order in memory", dict(images=turned(2, 3, 4, 6), patch_size=2), grad=False),
        refusal("5 × 6 in patches of 2", dict(images=(2, 3, 5, 6), patch_size=2)),
        refusal("6 × 5 in patches of 2", dict(images=(2, 3, 6, 5), patch_size=2)),
        refusal("patches larger than the picture", dict(images=(2, 3, 4, 6), patch_size=12)),
        refusal("patch_size 0", PHOTO | dict(patch_size=0)),
        refusal("patch_size -2", PHOTO | dict(patch_size=-2)),
    ),
    mistakes={
        "a patch is a square, not a run of pixels": Replays(run_of_pixels, run_of_all_channels),
        "inside a patch: channel, row, column": Replays(wrong(0, 2, 4, 3, 5, 1), wrong(0, 2, 4, 3, 1, 5)),
        "inside a patch: row before column": wrong(0, 2, 4, 1, 5, 3),
        "patches go left to right, then down": Replays(wrong(0, 4, 2, 1, 3, 5), wrong(0, 4, 2, 1, 5, 3)),
        "a patch holds all channels": Replays(wrong(0, 1, 2, 4, 3, 5, merged=4), wrong(0, 2, 4, 1, 3, 5, merged=4)),
        "one row for each patch": lambda images, patch_size: oracle.patchify(images, patch_size).mT,
        "patch_size must divide height and width": Spotted(rules.patch_not_refused, whole_patches_only, certain=True),
    },
)
