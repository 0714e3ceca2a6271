"""What a child claims, checked for its form."""

from nbformat.v4 import new_output

from utils.observe import codec


class BadClaim(Exception):
    pass


def observation(message):
    return codec.decode(message)


def cell_outputs(message):
    kept = []
    reply = codec.decode(message)
    for output in reply.get("outputs", ())[:200]:
        try:
            kept.append(new_output(**output))
        except Exception:
            continue
    return kept
