"""The drill in a notebook: `drills()` shows one card after another. What it draws is in utils/drills/session.py.

Everything is reached with Tab, Space, Enter and the arrows; after each answer the focus is where the next one begins.
Verdicts, errors and the last minutes of an interview are said by screen readers.
"""

import asyncio
import contextlib
import threading
import time
from html import escape

import ipywidgets as widgets

from utils import lesson
from utils.drills.card import LEVELS
from utils.drills.deck import chosen, open_cards, passed_in
from utils.drills.interview import Interview
from utils.drills.loading import load_cards
from utils.drills.pages import NOTHING_OPEN, after, heading, html, model_answer, reply_hint, spoken, verdict
from utils.drills.replies import SELF_JUDGED, Unclear, option_typed
from utils.drills.session import NEW_PER_DAY, Session
from utils.drills.store import Store, StoreError

WIDE = {"width": "auto"}
AUTO = {"width": "max-content"}
UNSEEN = {"width": "1px", "height": "1px", "padding": "0", "margin": "0"}
SETTLED = 0.4  # seconds without a letter
SHOWN = 0.5  # seconds until a widget is on the page: what is not there yet cannot have the focus
STYLE = """<style>
.workbook-code textarea { font-family: monospace; white-space: pre; }
.workbook-code.widget-textarea, .workbook-words.widget-textarea { flex-direction: column; }
.workbook-code.widget-textarea label, .workbook-words.widget-textarea label { width: auto; text-align: start; }
.workbook-code textarea, .workbook-words textarea { align-self: stretch; width: auto; }
.workbook-card .widget-html-content { line-height: 1.5; }
.workbook-card .widget-html-content p, .workbook-card .widget-html-content ol { margin: 0.4em 0; }
.workbook-card .widget-html-content th, .workbook-card .widget-html-content td { padding: 0.1em 0.8em; }
.workbook-card .widget-html-content pre { white-space: pre; overflow-x: auto; }
</style>"""


def drills(unlock_all=False, phases=None, kinds=None, levels=None, new=NEW_PER_DAY):
    """Show the drill: due cards and new ones of what has passed its check.

    unlock_all: all cards, passed or not; phases, kinds, levels: lists, to ask for some only; new: new cards a day
    """
    store = Store()
    cards = chosen(load_cards(), phases, kinds, levels)
    _show(Session(open_cards(cards, passed_in(store), unlock_all), store, new_per_day=new))


def interview(level=None):
    """Show a mock interview of 45 minutes: "junior", "senior" or "staff"; without a level, buttons to begin one.

    One that was broken off today is offered to go on with. The clock runs from the press of a button, or, with a level
    and none broken off, at once.
    """
    if level not in (None, *LEVELS):
        print(f"There is no level {level}; there is {', '.join(LEVELS)}.")
        return
    cards, store = load_cards(), Store()
    broken_off = Interview.broken_off(cards, store)
    if level and broken_off is None:
        return _show(Interview(cards, store, level))
    waiting = f"Interview: {broken_off.described()}." if broken_off else f"Interview: {', '.join(LEVELS)}."
    start = None if lesson.grading() else Start(cards, store, [level] if level else LEVELS, broken_off)
    lesson.display_widget(start and start.box, html(waiting), waiting)


class Start:
    """The page before an interview: a button for each level, and one to go on. `box` is what is shown."""

    def __init__(self, cards, store, levels, broken_off):
        self.buttons = [
            self._button(f"Begin: {level}", lambda level=level: Interview(cards, store, level)) for level in levels
        ]
        said = "45 minutes. The clock runs from the moment you press; it stands still while you read a model answer."
        if broken_off:
            self.buttons.insert(0, self._button("Go on", lambda: Interview.broken_off(cards, store) or broken_off))
            said = f"There is an interview that was broken off today: {broken_off.described()}. {said}"
        self.box = widgets.VBox([widgets.HTML(html(said)), widgets.HBox(self.buttons, layout={"flex_flow": "wrap"})])
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_later(SHOWN, self._focus)

    def _focus(self):
        """To the first button; not when the whole page is run and a card was shown a moment ago."""
        if Panel.latest is None or time.monotonic() - Panel.latest.made > 4 * SHOWN:
            self.buttons[0].focus()

    def _button(self, text, session):
        button = widgets.Button(description=text, layout=AUTO)
        button.on_click(lambda _: self._begin(session))
        return button

    def _begin(self, session):
        self.box.children = [Panel(session()).box]


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
        Panel.latest, self.made = self, time.monotonic()
        self.top = widgets.Button(tooltip="a card", tabbable=False, layout=UNSEEN)
        self.end_of_said = widgets.Button(tooltip="the verdict", tabbable=False, layout=UNSEEN)
        self.head, self.prompt, self.said = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.model, self.verdict, self.alarm = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.place, self.ticks = widgets.VBox(), widgets.VBox()
        self.answer = self._button("Answer", self.submit_soon, "check")
        self.pass_ = self._button("I do not know", self.give_up, "question")
        self.later = self._button(session.LATER, self.skip, "clock-o")
        self.next = self._button("Next card", self.forward, "arrow-right")
        self.stop = self._button("End", self.end, "stop")
        self.again = self._button("Look again", self.forward, "refresh")
        self.buttons = (self.answer, self.pass_, self.later, self.next, self.stop, self.again)
        row = widgets.HBox([*self.buttons, self.verdict], layout={"flex_flow": "wrap"})
        parts = [self.place, self.model, self.ticks, row, self.said, self.end_of_said]
        style = widgets.HTML(STYLE, layout={"display": "none"})
        self.box = widgets.VBox([style, self.top, self.head, self.alarm, self.prompt, *parts])
        self.box.add_class("workbook-card")
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
        self._say("")
        self.alarm.value = ""
        self.model.value, self.ticks.children, self.fields, self.options = "", (), [], []
        if asked is None:
            self.prompt.value, self.place.children = html(self.session.summary()), ()
            self._offer(*([] if self.session.ENDS else [self.again]))
        else:
            self.prompt.value = html(asked.prompt)
            self.place.children = (widgets.HTML(f"<p>{escape(reply_hint(asked))}</p>"), *self._reply(asked))
            self._offer(self.answer, self.pass_, self.later, *self._may_end())
        self.top.focus()  # what has the focus is scrolled into sight: the whole card, if it fits, and not its last line
        self._focus()
        self._refresh()

    def _focus(self):
        """Put the focus where the next thing is done."""
        if self.session.asked:
            [*self.ticks.children[1:], *self.fields][0].focus()
        elif self.verdict.value:
            self.end_of_said.focus()  # so that as much of it is in sight as fits below the verdict
            self.next.focus()

    def _reply(self, asked):
        """The widgets in which a card is answered."""
        kind, typed = asked.card.kind, self.session.typed
        if kind in ("choice", "bug"):
            self.options = [self._option(place, text) for place, text in enumerate(asked.options)]
            call = f", or {asked.card.exercise}(…)" if kind == "bug" else ""
            self.fields = [self._line(typed, "Your answer", f"1 to {len(asked.options)}{call}")]
        elif kind == "numeric":
            unit = asked.question.unit
            self.fields = [self._line(typed, f"Your answer, in {unit}" if unit else "Your answer", "a number")]
        elif kind == "shape":
            lines = [*typed.split("\n"), *[""] * len(asked.card.asks)]
            self.fields = [
                self._line(line, one, "its shape") for one, line in zip(asked.card.asks, lines, strict=False)
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

    def _line(self, text, label, hint):
        field = widgets.Text(
            text, description=label, placeholder=hint, style={"description_width": "initial"}, layout=WIDE
        )
        field.on_msg(lambda _, said, __: self.submit_soon() if said.get("event") == "submit" else None)  # Enter
        field.observe(lambda _: self._typed(), names="value")
        return field

    def _page(self, text, code):
        field = widgets.Textarea(text, description="Your answer", rows=18 if code else 6, layout=WIDE)
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
                self._say(str(error), urgent=True)

    def _say(self, line, more="", urgent=False):
        """A line beside the buttons, said aloud; more of it below."""
        self.verdict.value, self.said.value = spoken(line, urgent), html(more)

    def _offer(self, *buttons):
        """Show these buttons and no others."""
        for button in self.buttons:
            button.layout.display = None if button in buttons else "none"

    def _may_end(self):
        return [self.stop] if self.session.ENDS else []

    def _refresh(self):
        self.head.value = f"<b>{escape(heading(self.session))}</b>"
        if moment := self.session.moment():
            self.alarm.value = spoken(f"**{moment}**", urgent=True)

    async def _tick(self):
        await asyncio.sleep(SHOWN)
        self._focus()
        while Panel.latest is self:
            if self._turn.acquire(blocking=False):  # while code is being run the clock stands still
                try:
                    self._refresh()
                    self.session.beat()
                except StoreError as error:  # tried again in a second: one failure must not stop the clock
                    self._say(str(error), urgent=True)
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
            self.model.value = html(model_answer(self.session))
            points = [
                widgets.Checkbox(False, description=f"{point['for']} ({point['points']:g})", indent=False, layout=WIDE)
                for point in asked.card.rubric
            ]
            self.ticks.children = (widgets.Label("Tick what you said, then Answer."), *points)
            self._focus()
            return
        if asked.card.kind in ("code", "bug"):
            self._say("Running it …")
        self._finish(self.session.answer(self._given() if chosen is None else chosen))

    def give_up(self):
        self._finish(self.session.give_up())

    def skip(self):
        self.session.skip()
        self.forward()

    def end(self):
        """No more cards: to the score sheet."""
        self.session.end()
        self.forward()

    def _given(self):
        """The reply that the widgets hold."""
        asked, typed = self.session.asked, "\n".join(field.value for field in self.fields)
        if asked.card.kind in SELF_JUDGED:
            return [place for place, box in enumerate(self.ticks.children[1:]) if box.value]
        if self.options and (typed.strip().isdecimal() or asked.card.kind == "choice" or not typed.strip()):
            return option_typed(asked, typed)
        return typed

    def _finish(self, feedback):
        self._say(verdict(feedback)[0], after(feedback, self.session))
        if feedback.final:
            self.model.value, self.ticks.children = "", ()
            for field in [*self.fields, *self.options]:
                field.disabled = True
            self._offer(self.next, *self._may_end())
            self._focus()
            if self._loop:  # once more when all is laid out: only then is known what fits
                self._loop.call_soon_threadsafe(self._loop.call_later, SETTLED, self._focus)
        self._refresh()

    def _typed(self):
        self._changed = time.monotonic()
        with self._turn:
            if self.session.asked:
                self.session.keep("\n".join(field.value for field in self.fields))
