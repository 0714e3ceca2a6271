"""`workbook drill`: the drill in a terminal, by keyboard alone. What it draws is in utils/drills/session.py."""

from textual import on
from textual.app import App
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Label, Markdown, OptionList, SelectionList, Static, TextArea

from utils.drills.pages import after, heading, model_answer, number_hint, reply_hint, verdict
from utils.drills.replies import SELF_JUDGED, Unclear
from utils.drills.store import StoreError


class Written(TextArea):
    """Room for words or code; Tab leaves it, or indents code."""

    def __init__(self, text, code=False):
        super().__init__(text, tab_behavior="indent" if code else "focus", show_line_numbers=code, soft_wrap=True)
        self.styles.height = 18 if code else 6


class Reply(Vertical):
    """Where a card is answered. `reply()` is what goes to the session, `text()` what is kept while typing."""

    def __init__(self, asked, typed):
        super().__init__()
        self.asked, self.typed = asked, typed

    def compose(self):
        kind, options = self.asked.card.kind, self.asked.options
        yield Label(reply_hint(self.asked), classes="hint")
        if kind in ("choice", "bug"):
            yield OptionList(*(f"{number}  {text}" for number, text in enumerate(options, 1)), markup=False)
        if kind == "bug":
            yield Input(self.typed, placeholder=f"or a call that exposes it: {self.asked.card.exercise}(…)")
        if kind == "numeric":
            yield Input(self.typed, placeholder=number_hint(self.asked))
        if kind == "shape":
            lines = [*self.typed.split("\n"), *[""] * len(self.asked.card.asks)]
            for ask, line in zip(self.asked.card.asks, lines, strict=False):
                yield Input(line, placeholder=f"the shape of {ask}")
        if kind == "code":
            yield Written(self.typed or self.asked.card.code, code=True)
        if kind in SELF_JUDGED:
            yield Written(self.typed)

    def first(self):
        """What has the focus at the beginning."""
        return next(iter(self.query("OptionList, Input, TextArea")))

    def text(self):
        typed = [field.value for field in self.query(Input)] + [field.text for field in self.query(TextArea)]
        return "\n".join(typed)

    def reply(self):
        options = self.query(OptionList)
        if options and (not self.text().strip() or self.screen.focused is options.first()):
            return options.first().highlighted
        return self.text()


class Ticks(Vertical):
    """The rubric, to tick what the answer held: Space ticks, Ctrl+S is done. What is ticked is also said in words."""

    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def compose(self):
        rubric = enumerate(self.asked.card.rubric)
        points = [(Content(f"{point['for']} ({point['points']:g})"), place) for place, point in rubric]
        yield Label("Tick what you said (Space), then Ctrl+S. Ticked: nothing", id="ticked", markup=False)
        yield SelectionList(*points)

    def on_mount(self):
        self.query_one(SelectionList).focus()

    @on(SelectionList.SelectedChanged)
    def _ticked(self, event):
        numbers = ", ".join(str(place + 1) for place in sorted(event.selection_list.selected))
        text = f"Tick what you said (Space), then Ctrl+S. Ticked: {numbers or 'nothing'}"
        self.query_one("#ticked").update(text)


class DrillApp(App):
    """One card after another until there is none, or the learner stops."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { background: $primary; color: $text; padding: 0 1; height: 1; }
    #page { padding: 1 2; }
    Reply, Ticks { height: auto; }
    #more { height: 1; padding: 0 2; color: $text-accent; }
    #place { height: auto; }
    #prompt { margin: 0; padding: 0; }
    .hint { width: 100%; }
    MarkdownFence > Label { width: 1fr; }
    OptionList, SelectionList { height: auto; max-height: 12; border: round $primary; }
    #said { margin-top: 1; border-left: thick $accent; padding-left: 1; display: none; }
    """
    BINDINGS = [
        Binding("ctrl+s,f2", "submit", "Answer", priority=True),
        Binding("ctrl+g,f3", "give_up", "I do not know", priority=True),
        Binding("ctrl+n,f4", "skip", "Later", priority=True),
        Binding("ctrl+n,f4", "skip_for_good", "Skip", priority=True),
        Binding("ctrl+t", "end", "End", priority=True),
        Binding("ctrl+q,f10", "leave", "Stop", priority=True),
        Binding("pageup", "turn(-1)", show=False, priority=True),
        Binding("pagedown", "turn(1)", "Scroll", priority=True),
        Binding("enter", "forward", "Go on"),
        *(Binding(str(n), f"pick({n})", show=False) for n in range(1, 10)),
    ]

    def __init__(self, session):
        super().__init__()
        self.session, self.title = session, "Drill"
        self.done, self.revealed = False, False

    def compose(self):
        yield Static(id="head", markup=False)
        with VerticalScroll(id="page"):
            yield Markdown(id="prompt")
            yield Vertical(id="place")
            yield Markdown(id="said")
        yield Static(id="more", markup=False)
        yield Footer()

    async def on_mount(self):
        self.set_interval(1, self._tick)
        for what in ("scroll_y", "virtual_size"):
            self.watch(self.query_one("#page"), what, lambda: self.call_after_refresh(self._say_what_is_below))
        await self._next()

    # ---- what is shown ----

    async def _next(self):
        asked = self.session.next()
        self.done, self.revealed = asked is None, False
        self.query_one("#said").display = False
        await self.query_one("#place").remove_children()
        await self.query(Ticks).remove()
        if asked is None:
            await self.query_one("#prompt").update(f"{self.session.summary()}\n\n*Enter closes.*")
            self.query_one("#page").focus()
        else:
            await self.query_one("#prompt").update(asked.prompt)
            reply = Reply(asked, self.session.typed)
            await self.query_one("#place").mount(reply)
            reply.first().focus(scroll_visible=False)  # a long card is read from its top
        self.query_one("#page").scroll_home(animate=False)
        self.refresh_bindings()
        self._tick()

    async def _say(self, text):
        said = self.query_one("#said")
        said.display = True
        await said.update(text)
        self.call_after_refresh(self.query_one("#page").scroll_to_widget, said, top=True, animate=False)

    def _say_what_is_below(self):
        """The line above the keys: how much of a long card is out of sight."""
        page, more = self.query_one("#page"), self.query_one("#more")
        below = round(page.max_scroll_y - page.scroll_y)
        more.update(f"↓ PgDn: {below} more line{'s' * (below > 1)} below")
        more.visible = below > 0

    def _tick(self):
        self.session.beat()
        for head in self.query("#head"):  # none at the very beginning and end
            head.update(heading(self.session))
            self._say_what_is_below()

    @property
    def _reply(self):
        return self.query_one(Reply)

    # ---- keys ----

    async def action_submit(self):
        if self.session.asked.card.kind in SELF_JUDGED and not self.revealed:
            self.revealed = True
            await self._say(model_answer(self.session))
            await self.query_one("#page").mount(Ticks(self.session.asked))
        elif self.session.asked.card.kind in ("code", "bug"):
            await self._say("Running it …")
            self.call_after_refresh(self._judge)
        else:
            await self._judge()

    async def _judge(self):
        if self.done:  # the key was pressed twice
            return
        ticks = self.query(SelectionList)
        reply = sorted(ticks.first().selected) if ticks else self._reply.reply()
        try:
            feedback = self.session.answer(reply)
        except (Unclear, StoreError) as error:
            return await self._say(str(error))
        await self._finish(feedback)

    async def _finish(self, feedback):
        self.done = feedback.final
        self.refresh_bindings()
        await self._say(f"{verdict(feedback)[0]}\n\n{after(feedback, self.session)}")
        if feedback.final:
            self._reply.disabled = True
            await self.query(Ticks).remove()
            self.query_one("#page").focus()
        self._tick()

    async def action_give_up(self):
        if not self.done:
            await self._finish(self.session.give_up())

    async def action_skip(self):
        if not self.done:
            self.session.skip()
            await self._next()

    async def action_skip_for_good(self):
        await self.action_skip()

    async def action_end(self):
        """To the score sheet of an interview."""
        self.session.end()
        await self._next()

    async def action_forward(self):
        if not self.done:
            return
        if self.session.next() is None and not self.query(Reply):
            self.exit()
        else:
            await self._next()

    async def action_pick(self, number):
        """A digit chooses an option at once."""
        if not self.done and number <= len(self.session.asked.options):
            self._reply.query_one(OptionList).highlighted = number - 1
            self._reply.query_one(OptionList).focus()
            await self.action_submit()

    def action_turn(self, way):
        page = self.query_one("#page")
        page.scroll_page_down() if way > 0 else page.scroll_page_up()

    def action_leave(self):
        if self.session.asked and not self.done:
            self.session.keep(self._reply.text(), at_once=True)
        self.exit()

    def check_action(self, action, parameters):
        """Which keys the last line shows: those of a card on the table, or those after it."""
        ends = self.session.ENDS
        if action == "forward":
            return self.done
        if action == "end" or (action in ("skip", "skip_for_good") and ends != (action == "skip_for_good")):
            return action == "end" and ends and bool(self.query(Reply))
        return not self.done if action in ("submit", "give_up", "skip", "skip_for_good", "pick") else True

    # ---- what fields say ----

    @on(Input.Submitted)
    async def _entered(self, event):
        fields = list(self._reply.query(Input))
        if event.input is fields[-1]:
            await self.action_submit()
        else:
            fields[fields.index(event.input) + 1].focus()

    @on(OptionList.OptionSelected)
    async def _selected(self):
        await self.action_submit()

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _typed(self):
        if not self.done and self.query(Reply):
            self.session.keep(self._reply.text())
