"""patchify: wrong solutions and unusual right ones."""

import torch
import torch.nn.functional as F

from tests.bank import right, wrong


def checked(images, patch_size):
    """The number of rows and columns of patches."""
    height, width = images.shape[-2:]
    if patch_size < 1 or height % patch_size or width % patch_size:
        raise ValueError("patch_size must divide height and width")
    return height // patch_size, width // patch_size


def split(images, size):
    rows, columns = checked(images, size)
    return images.reshape(*images.shape[:2], rows, size, columns, size)  # B C row y column x


@wrong("patchify", says="a patch is a square, not a run of pixels")
def only_reshaped(images, patch_size):
    rows, columns = checked(images, patch_size)
    return images.reshape(len(images), rows * columns, -1)


@wrong("patchify", says="inside a patch: channel, row, column")
def channels_last(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


@wrong("patchify", says="patches go left to right, then down")
def down_then_right(images, patch_size):
    return split(images, patch_size).permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2)


@wrong("patchify", says="inside a patch: row before column")
def column_before_row(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 1, 5, 3).flatten(3).flatten(1, 2)


@wrong("patchify", says="a patch holds all channels")
def one_patch_per_channel(images, patch_size):
    return split(images, patch_size).permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(1, 3)


@wrong("patchify", says="patch_size must divide height and width")
def border_dropped(images, patch_size):
    height, width = (side // patch_size * patch_size for side in images.shape[-2:])
    return split(images[..., :height, :width], patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


@wrong("patchify", says="patch_size must divide height and width")
def border_padded(images, patch_size):
    down, right_side = (-side % patch_size for side in images.shape[-2:])
    images = F.pad(images, (0, right_side, 0, down))
    return split(images, patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


@wrong("patchify", says="one row for each patch")
def columns_are_patches(images, patch_size):
    checked(images, patch_size)
    return F.unfold(images.double(), patch_size, stride=patch_size).to(images.dtype)


@wrong("patchify")
def grid_kept(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3)


@wrong("patchify")
def pixels_kept_apart(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


@wrong("patchify")
def overlapping(images, patch_size):
    checked(images, patch_size)
    return F.unfold(images.double(), patch_size).mT.to(images.dtype)


@wrong("patchify")
def floats_for_bytes(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2) / 1


@wrong("patchify")
def height_alone_refused(images, patch_size):
    if patch_size < 1 or images.shape[2] % patch_size:
        raise ValueError("patch_size must divide the height")
    width = images.shape[3] // patch_size * patch_size
    return split(images[..., :width], patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


@right("patchify", why="reshape, permute, flatten")
def permuted(images, patch_size):
    return split(images, patch_size).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


@right("patchify", why="Tensor.unfold, twice")
def unfolded(images, patch_size):
    checked(images, patch_size)
    windows = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return windows.permute(0, 2, 3, 1, 4, 5).reshape(len(images), -1, images.shape[1] * patch_size**2)


@right("patchify", why="patch by patch")
def patch_by_patch(images, patch_size):
    rows, columns = checked(images, patch_size)
    found = []
    for row in range(0, rows * patch_size, patch_size):
        for column in range(0, columns * patch_size, patch_size):
            found.append(images[:, :, row : row + patch_size, column : column + patch_size].flatten(1))
    return torch.stack(found, 1)


@right("patchify", why="two transposes")
def transposes(images, patch_size):
    batch, channels = images.shape[:2]
    rows, columns = checked(images, patch_size)
    strips = images.transpose(1, 2).reshape(batch, rows, patch_size, channels, -1).transpose(2, 3)
    strips = strips.reshape(batch, rows, channels, patch_size, columns, patch_size)
    return strips.movedim(4, 2).reshape(batch, rows * columns, -1)


@right("patchify", why="chunks along both sides")
def chunks(images, patch_size):
    rows, columns = checked(images, patch_size)
    cells = [cell for strip in images.chunk(rows, 2) for cell in strip.chunk(columns, 3)]
    return torch.stack([cell.reshape(len(images), -1) for cell in cells], 1)


@right("patchify", why="view: an axis can always be split, however it lies in memory")
def view_only(images, patch_size):
    rows, columns = checked(images, patch_size)
    parts = images.view(*images.shape[:2], rows, patch_size, columns, patch_size)
    return parts.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
