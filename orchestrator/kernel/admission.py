"""What may run now: admission under limits, and what becomes of tokens that are dropped (R13, R14)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.graph.limits import Reserve
from orchestrator.kernel import records as r
from orchestrator.kernel.frame import Frame, FrameResult
from orchestrator.kernel.ledger import Ledger
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.rules import RULES, Rules, rules_of
from orchestrator.kernel.tally import Tally
from orchestrator.kernel.token import Activation, Phase

_NOTHING = Reserve()


class Delta:
    """What a record brought about."""

    __slots__ = ("cancelled", "started")

    def __init__(self) -> None:
        self.started: list[Activation] = []
        """Newly admitted: run them."""
        self.cancelled: list[Activation] = []
        """No longer part of the run: stop them."""


class Admission:
    """What stands of a run: its graphs, what runs in them, what they have spent. Changed by the fold only."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.head: int = 0
        """`seq` of the last record."""
        self.started: r.RunStarted | None = None
        self.ended: r.Ended | None = None
        self.running: dict[str, Activation] = {}
        """Every admitted activation, in the order of admission."""
        self.questions: dict[str, Question] = {}
        self.asked_at: dict[str, float] = {}
        """Open question -> when it was asked, by the clock that its deadline is of."""
        self.result: FrameResult | None = None
        """Set when nothing is left to do but to journal the end."""
        self.approve: str | None = None
        self.paused = self.cancelled = False
        self.steps: int = 0
        """Steps that landed."""
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        """Place of a graph -> what was counted there."""
        self.seconds: float = 0.0
        """Time alive: pauses, and the gaps that a crash left, do not count."""
        self.updated: float = 0.0
        self.content: str = ""
        self.tools: dict[str, str] = {}
        """The tools that its nodes may call, with the digests of their schemas, as of the last drive."""
        self.ledger = Ledger()
        self.root: Frame | None = None
        self._calls = self._input_tokens = self._output_tokens = 0
        self._cost = 0.0
        self._estimated = False
        self._longest: int = 0
        """Tokens of the longest reply of a model so far."""
        self._dearest: float | None = None
        """What the dearest call of a model cost so far."""
        self._held: dict[str, Reserve] = {}
        """Call under way -> what it reserves."""
        self._asked: dict[str, Activation] = {}
        self._inner: dict[str, Frame] = {}
        self._ready: dict[str, Frame] = {}
        self._spent: list[Frame] = []
        self._awake = False
        self._delta = Delta()

    # -- admission: what may run now (R13, R14) -----------------------------------------------------------------

    def _mark(self, frame: Frame) -> None:
        if frame.queue:
            self._ready[frame.key] = frame
        if frame.exhausting is not None:
            self._spent.append(frame)

    def _admit(self) -> None:
        while True:
            if not self.paused:
                for key, frame in tuple(self._ready.items()):
                    queue = frame.queue
                    if frame.result is None:
                        while queue and self._admit_one(frame, queue[0]):
                            pass
                    if not queue or frame.result is not None:
                        self._ready.pop(key, None)
                    elif self._full(self.root):
                        break
            if not self._spent:
                return
            spent, self._spent = self._spent, []
            for frame in spent:
                if frame.result is not None or frame.exhausting is None:
                    continue
                if frame.active:
                    self._spent.append(frame)
                else:
                    frame.collapse()
                    self._mark(frame)
            if len(self._spent) == len(spent):
                return

    def _full(self, frame: Frame | None) -> bool:
        if frame is None:
            return True
        most = frame.limits.concurrency
        return most is not None and frame.active >= most

    def _admit_one(self, frame: Frame, activation: Activation) -> bool:
        line = frame.line
        for outer in line:
            most = outer.limits.concurrency
            if outer.exhausting is not None or outer.result is not None or (most is not None and outer.active >= most):
                return False
        if not activation.counted and not self._reserve(frame, activation):
            return False
        frame.queue.popleft()
        activation.phase = Phase.RUNNING
        for outer in line:
            outer.active += 1
        self.running[activation.key] = activation
        self._delta.started.append(activation)
        return True

    def _reserve(self, frame: Frame, activation: Activation) -> bool:
        """Take a step, and a visit, from the limits; false when one is spent."""
        node, visits = activation.node, frame.limits.visits
        if frame.after:
            if node in frame.once:
                return self._exhaust(frame, "visits", node)
            frame.once.add(node)
        elif visits:
            most = visits.get(node)
            if most is not None and frame.visits.get(node, 0) >= most:
                return self._exhaust(frame, "visits", node)
        for outer in frame.line:
            most = outer.limits.steps
            if most is not None and outer.steps >= most and not outer.after:
                return self._exhaust(outer, "steps", node)
        for outer in frame.line:
            if not outer.after:
                outer.steps += 1
        if visits and not frame.after:
            frame.visits[node] = frame.visits.get(node, 0) + 1
        frame.tally.visits[node] += 1
        activation.counted = True
        return True

    def _exhaust(self, frame: Frame, limit: str, node: str) -> bool:
        frame.exhaust(limit, node)
        self._spent.append(frame)
        return False

    def _stop(self, key: str) -> Activation | None:
        """An activation no longer runs: give its place back."""
        activation = self.running.pop(key, None)
        if activation is not None:
            for frame in activation.frame.line:
                frame.active -= 1
        return activation

    @property
    def rules(self) -> Rules:
        """The rules that the run follows."""
        return rules_of(RULES if self.started is None else self.started.rules)

    # -- what frames tell ---------------------------------------------------------------------------------------

    def dropped(self, activation: Activation) -> None:
        """A live token is gone: stop it, and all that runs inside it."""
        if self._stop(activation.key) is not None:
            self._delta.cancelled.append(activation)
        if self._held:
            self._release(activation)
        inner = self._inner.pop(activation.key, None)
        if inner is not None:
            inner.parent_gone = True
            inner.finish(FrameResult("cancelled", inner.trunk().values))
        if activation.phase is Phase.ASKING:
            for question in [q for q, asker in self._asked.items() if asker is activation]:
                del self._asked[question]
                self.questions.pop(question, None)
                self.asked_at.pop(question, None)

    def ended_frame(self, frame: Frame) -> None:
        """The frame has a result: the run's, or that of the subgraph's activation around it."""
        parent = frame.parent
        if parent is None:
            self.result = frame.result
            self.questions.clear()
            return
        if frame.parent_gone or self._inner.pop(parent.key, None) is None:
            return
        parent.child = frame.result
        parent.phase = Phase.RUNNING
        for outer in parent.frame.line:
            outer.active += 1
        self.running[parent.key] = parent
        self._delta.started.append(parent)

    def took(self, frame: Frame, index: int) -> None:
        """An edge was taken."""
        frame.tally.taken[index] += 1

    # -- reservations of calls under way --------------------------------------------------------------------------

    def _hold(self, key: str, line: tuple[Frame, ...], reserve: Reserve | None) -> None:
        """Reserve for a call under way, in the graphs around it, in place of what it reserved so far."""
        before = self._held.pop(key, None) or _NOTHING
        # A step that is gone holds nothing: its graphs do not wait for the run that it began.
        now = reserve if reserve is not None and line else _NOTHING
        if now != _NOTHING:
            self._held[key] = now
        for frame in line:
            frame.held_calls += now.calls - before.calls
            frame.held_tokens += now.tokens - before.tokens
            frame.held_cost += now.cost - before.cost

    def _release(self, activation: Activation) -> None:
        """No call of this activation is under way any more."""
        for entry in self.ledger.of(activation.key):
            if entry.intended.key in self._held:
                self._hold(entry.intended.key, activation.frame.line, None)

    def _release_all(self) -> None:
        """A new drive: of the calls of the one before none is under way."""
        self._held.clear()
        for frame in self.frames():
            frame.held_calls = frame.held_tokens = 0
            frame.held_cost = 0.0

    # -- the graphs that run ------------------------------------------------------------------------------------

    def frames(self) -> Iterator[Frame]:
        """The graphs that run, the outermost first."""
        if self.root is not None:
            yield self.root
        yield from list(self._inner.values())

    def _chain_of(self, key: str) -> tuple[Frame, ...]:
        """The graphs around an activation, its own first."""
        activation = self.running.get(key)
        if activation is not None:
            return activation.frame.line
        return (self.root,) if self.root is not None else ()

    def _line_of(self, key: str) -> tuple[Frame, ...]:
        """The graphs around an activation, its own first, also while it asks or is set aside; none if it is gone."""
        activation = self.activation(key)
        return () if activation is None else activation.frame.line

    def activation(self, key: str) -> Activation | None:
        """A live activation, whatever it does."""
        found = self.running.get(key)
        if found is None:
            found = next((frame.live[key] for frame in self.frames() if key in frame.live), None)
        return found
