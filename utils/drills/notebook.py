"""The drill in a notebook: `drills()` shows one card after another. What it draws is in utils/drills/session.py.

Everything is reached with Tab, Space, Enter and the arrows; after each answer the focus is where the next one begins.
"""

import asyncio
import contextlib
import threading
import time
from html import escape

import ipywidgets as widgets

from utils import lesson
from utils.drills.deck import chosen, open_cards, passed_in
from utils.drills.interview import Interview
from utils.drills.loading import load_cards
from utils.drills.pages import NOTHING_OPEN, after, heading, html, model_answer, number_hint, reply_hint
from utils.drills.replies import SELF_JUDGED, Unclear
from utils.drills.session import NEW_PER_DAY, Session
from utils.drills.store import Store, StoreError

WIDE = {"width": "100%"}
AUTO = {"width": "max-content"}
SETTLED = 0.4  # seconds without a letter
STYLE = "<style>.workbook-code textarea { font-family: monospace; white-space: pre; }</style>"


def drills(unlock_all=False, phases=None, kinds=None, levels=None, new=NEW_PER_DAY):
    """Show the drill: due cards and new ones of what has passed its check.

    unlock_all: all cards, passed or not; phases, kinds, levels: lists, to ask for some only; new: new cards a day
    """
    store = Store()
    cards = chosen(load_cards(), phases, kinds, levels)
    _show(Session(open_cards(cards, passed_in(store), unlock_all), store, new_per_day=new))


def interview(level="junior"):
    """Show a mock interview of 45 minutes at a level: "junior", "senior" or "staff"."""
    _show(Interview(load_cards(), Store(), level))


def _show(session):
    for sentence in session.store.said:
        print(sentence)
    waiting = f"Drill: {session.status()}." if session.deck else f"Drill: no card is open yet. {NOTHING_OPEN}"
    panel = None if lesson.grading() else Panel(session)
    lesson.display_widget(panel and panel.box, html(waiting), waiting)


class Panel:
    """The widgets of one session. `box` is what is shown."""

    latest = None  # the panel whose clock runs

    def __init__(self, session):
        self.session = session
        self._turn = threading.RLock()  # the clock ticks in one thread, JupyterLab presses buttons in another
        Panel.latest = self
        self.top = widgets.Button(
            tooltip="a card", tabbable=False, layout={"width": "1px", "height": "1px", "padding": "0"}
        )
        self.head, self.prompt, self.said = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.place, self.ticks = widgets.VBox(), widgets.VBox()
        self.answer = self._button("Answer", self.submit_soon, "check")
        self.pass_ = self._button("I do not know", self.give_up, "question")
        self.later = self._button("Later", self.skip, "clock-o")
        self.next = self._button("Next card", self.forward, "arrow-right")
        buttons = widgets.HBox([self.answer, self.pass_, self.later, self.next])
        self.box = widgets.VBox([self.top, self.head, self.prompt, self.place, self.said, self.ticks, buttons])
        self.fields, self.options = [], []
        self._loop, self._waits, self._changed = None, False, 0.0
        self.forward()
        with contextlib.suppress(RuntimeError):  # no loop is running: the time is shown with each answer only
            self._loop = asyncio.get_running_loop()
            self._loop.create_task(self._tick())

    # ---- what is shown ----

    def forward(self):
        """The next card, or the page at the end."""
        asked = self.session.next()
        self.said.value, self.ticks.children, self.fields, self.options = "", (), [], []
        if asked is None:
            self.prompt.value, self.place.children = html(self.session.summary()), ()
            self._offer()
        else:
            self.prompt.value = html(asked.prompt)
            self.place.children = (widgets.HTML(f"<p>{escape(reply_hint(asked))}</p>"), *self._reply(asked))
            self._offer(*([self.answer] if self.fields else []), self.pass_, self.later)
        self.top.focus()  # what has the focus is scrolled into sight: the whole card, if it fits, and not its last line
        self._focus()
        self._refresh()

    def _focus(self):
        """Put the focus where the next thing is done."""
        if self.session.asked:
            [*self.ticks.children[1:], *self.options, *self.fields][0].focus()
        elif self.said.value:
            self.next.focus()

    def _reply(self, asked):
        """The widgets in which a card is answered."""
        kind, typed = asked.card.kind, self.session.typed
        if kind in ("choice", "bug"):
            self.options = [self._option(place, text) for place, text in enumerate(asked.options)]
        if kind == "bug":
            self.fields = [self._line(typed, f"or a call that exposes it: {asked.card.exercise}(…)")]
        elif kind == "numeric":
            self.fields = [self._line(typed, number_hint(asked))]
        elif kind == "shape":
            lines = [*typed.split("\n"), *[""] * len(asked.card.asks)]
            self.fields = [
                self._line(line, f"the shape of {one}") for one, line in zip(asked.card.asks, lines, strict=False)
            ]
        elif kind == "code" or kind in SELF_JUDGED:
            self.fields = [self._page(typed or asked.card.code, kind == "code")]
        numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(asked.options, 1))
        return [*([widgets.HTML(html(numbered)), widgets.HBox(self.options)] if numbered else []), *self.fields]

    def _option(self, place, text):
        """A button that chooses: its number is on it, its text above and in the tooltip."""
        button = widgets.Button(description=f"{place + 1}", tooltip=text, layout=AUTO)
        button.on_click(lambda _: self._do(self.submit, place))
        return button

    def _line(self, text, hint):
        field = widgets.Text(text, placeholder=hint, continuous_update=True, layout=WIDE)
        field.on_msg(lambda _, said, __: self.submit_soon() if said.get("event") == "submit" else None)  # Enter
        field.observe(lambda _: self._typed(), names="value")
        return field

    def _page(self, text, code):
        field = widgets.Textarea(text, rows=18 if code else 6, layout=WIDE)
        field.add_class("workbook-code" if code else "workbook-words")
        field.observe(lambda _: self._typed(), names="value")
        return field

    def _button(self, text, action, icon):
        button = widgets.Button(description=text, icon=icon, layout=AUTO)
        button.on_click(lambda _: self._do(action))
        return button

    def _do(self, action, *words):
        """What a button or Enter starts; what cannot be done is said on the card."""
        with self._turn:
            try:
                action(*words)
            except (Unclear, StoreError) as error:
                self.said.value = html(str(error))

    def _offer(self, *buttons):
        """Show these buttons and no others."""
        for button in (self.answer, self.pass_, self.later, self.next):
            button.layout.display = None if button in buttons else "none"

    def _refresh(self):
        self.head.value = f"{STYLE}<b>{heading(self.session)}</b>"

    async def _tick(self):
        await asyncio.sleep(0.5)
        self._focus()  # not before: what is not on the page yet cannot have it
        while Panel.latest is self:
            if self._turn.acquire(blocking=False):  # while code is being run the clock stands still
                try:
                    self._refresh()
                finally:
                    self._turn.release()
            await asyncio.sleep(1)

    # ---- what is done ----

    def submit_soon(self):
        """Submit once nothing more arrives: a front end sends Enter, or a click, faster than the last letters."""
        if self._loop is None:
            self._do(self.submit)
        elif not self._waits:
            self._waits = True
            self._loop.call_soon_threadsafe(self._loop.call_later, SETTLED, self._settle)

    def _settle(self):
        rest = self._changed + SETTLED - time.monotonic()
        if rest > 0:
            self._loop.call_later(rest, self._settle)
        else:
            self._waits = False
            self._do(self.submit)

    def submit(self, chosen=None):
        """Judge what is chosen or typed; of a written answer, show the model answer and the rubric first."""
        asked = self.session.asked
        if asked is None:
            return
        if asked.card.kind in SELF_JUDGED and not self.ticks.children:
            self.said.value = html(model_answer(self.session))
            points = [
                widgets.Checkbox(False, description=f"{point['for']} ({point['points']:g})", indent=False, layout=WIDE)
                for point in asked.card.rubric
            ]
            self.ticks.children = (widgets.Label("Tick what you said, then Answer."), *points)
            self._focus()
            return
        if asked.card.kind in ("code", "bug"):
            self.said.value = html("Running it …")
        self._finish(self.session.answer(self._given() if chosen is None else chosen))

    def give_up(self):
        self._finish(self.session.give_up())

    def skip(self):
        self.session.skip()
        self.forward()

    def _given(self):
        """The reply that the widgets hold."""
        asked, typed = self.session.asked, "\n".join(field.value for field in self.fields)
        if asked.card.kind in SELF_JUDGED:
            return [place for place, box in enumerate(self.ticks.children[1:]) if box.value]
        if self.options and not typed.strip():
            raise Unclear("Press the number of an option, or type a call.")
        return typed

    def _finish(self, feedback):
        self.said.value = html(after(feedback, self.session))
        if feedback.final:
            self.ticks.children = ()
            for field in [*self.fields, *self.options]:
                field.disabled = True
            self._offer(self.next)
            self._focus()
        self._refresh()

    def _typed(self):
        self._changed = time.monotonic()
        with self._turn:
            if self.session.asked:
                self.session.keep("\n".join(field.value for field in self.fields))
