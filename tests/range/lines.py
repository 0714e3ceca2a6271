"""Attacks on the line between a submission's process and the grader: forged, early, endless and malformed messages."""

from tests.range.attack import code
from tests.range.sabotage import malice

# ---- for points ------------------------------------------------------------------------------------------------------

code(
    "score",
    "garbage-on-every-socket",
    "bytes on every descriptor there is",
    after="""
import os
for fd in range(3, 64):
    try:
        os.set_blocking(fd, False)
        os.write(fd, bytes(8) * 8)
    except OSError:
        pass
""",
)
LINE = """
import sys, socket
def caller():
    frame = sys._getframe()
    while frame is not None and "receive_bytes" not in frame.f_globals:
        frame = frame.f_back
    return frame
frame = caller()
inside = frame.f_globals if frame else {}
while frame is not None and not isinstance(frame.f_locals.get("line"), socket.socket):
    frame = frame.f_back
line = frame.f_locals["line"] if frame else None
from utils.observe import codec
calm = dict(calls=[], problem=None, parameters=None, printed="", disturbed=[], caught=None, shapes=[])
zero = dict(raised=None, value=torch.zeros(()), grads=None, weight_grads=None, changed=[], shares=[])
"""
code(
    "score",
    "line-taken-over",
    "the notebook's own loop answers the grader: calm outputs, empty observations",
    after=LINE
    + """
while line is not None:
    asked = inside["receive_bytes"](line)
    forged = {"outputs": [{"output_type": "execute_result", "data": {"text/plain": "2.0"}, "metadata": {},
                           "execution_count": 1}], **calm, "calls": [zero]}
    inside["send_bytes"](line, codec.encode(forged))
""",
)
code(
    "score",
    "answers-in-advance",
    "hundreds of observations are sent before anything was asked",
    after=LINE
    + """
if line is not None:
    message = codec.encode({**calm, "calls": [zero] * 3})
    line.setblocking(False)
    try:
        for _ in range(300):
            line.send(len(message).to_bytes(8, "little") + message)
    except OSError:
        pass
    line.setblocking(True)
""",
)
code(
    "score",
    "sibling-answers",
    "a forked process reads the grader's questions and answers in place of the real one",
    after=LINE
    + """
import os
if line is not None and os.fork() == 0:
    while True:
        asked = inside["receive_bytes"](line)
        inside["send_bytes"](line, codec.encode({**calm, "calls": [zero] * 3, "outputs": []}))
""",
)

# ---- for harm ------------------------------------------------------------------------------------------------------

FORGE = """
import sys, socket
frame, line = sys._getframe(), None
while frame is not None and line is None:
    line = next((v for v in frame.f_locals.values() if isinstance(v, socket.socket)), None)
    frame = frame.f_back
def reply(body, length=None):
    if line is not None:
        line.sendall((len(body) if length is None else length).to_bytes(8, "little") + body)
def header(text):
    return len(text).to_bytes(8, "little") + text
"""
REPLIES = {
    "claims-nonsense": """reply(header(b'{"dict":[["calls",{"list":[1,null]}],["problem",7],["printed",0]]}'))""",
    "claims-odd-numbers": """
output = b'{"dict":[["output_type","stream"],["name",1e999],["text",NaN]]}'
reply(header(b'{"dict":[["outputs",{"list":[' + output + b']}]]}'))
""",
    "claims-deep": """reply(header(b'{"list":[' * 200_000))""",
    "claims-a-bomb": """reply(header(b'{"list":[' + b"{}," * 20_000_000 + b"{}]}"))""",
    "claims-too-much": "reply(b'x', 2**62)",
    "claims-slowly": """
import time
reply(b"", 2**20)
while line:
    line.send(b"x")
    time.sleep(0.5)
""",
    "claims-a-flood": "while line:\n    reply(bytes(2**20))",
}
for name, source in REPLIES.items():
    malice(name, f"forged messages on the line to the grader: {name}", FORGE + source)
