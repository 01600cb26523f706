"""Why a run is where it is, in words: data that a page, a terminal or a program shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """Why one step ran, and why it led where it led. Each text is one line, without secrets or control sequences."""

    seq: int | None
    """The record that ended the step; None while it has not ended."""
    step: str
    """Its path and node."""
    status: str
    came: str
    """Why it ran."""
    went: str = ""
    """Where it led and what decided that; empty while it has not ended."""
    not_taken: tuple[str, ...] = ()
    """The other edges of the node, each with its outcome."""
    waits: str = ""
    """The pool in which it waits for a place, and who holds the places; empty: it waits for none."""

    @property
    def line(self) -> str:
        """Where it led, what decided that, and the edges not taken; of a step that has not ended why it ran."""
        said = self.went or self.waits or self.came
        return f"{said}; not taken: {'; '.join(self.not_taken)}" if self.not_taken else said

    def to_json(self) -> dict[str, object]:
        """The explanation as plain JSON."""
        return {**asdict(self), "not_taken": list(self.not_taken)}

    def to_text(self) -> str:
        """The explanation as lines for a terminal."""
        lines = [f"{self.step}  ({self.status}{f', record {self.seq}' if self.seq is not None else ''})"]
        lines.append(f"  came  {self.came}")
        if self.waits:
            lines.append(f"  now   {self.waits}")
        if self.went:
            lines.append(f"  went  {self.went}")
        lines += [f"  {'not ' if not number else '    '}  {text}" for number, text in enumerate(self.not_taken)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """Why a run is where it is."""

    run_id: str
    seq: int
    status: str
    why: str
    """The reason, in one line."""
    steps: tuple[StepExplanation, ...] = field(default=())
    """The live steps; of an ended run the step that ended it."""

    def to_json(self) -> dict[str, object]:
        """The explanation as plain JSON."""
        return {**asdict(self), "steps": [step.to_json() for step in self.steps]}

    def to_text(self) -> str:
        """The explanation as lines for a terminal."""
        head = f"{self.run_id}  {self.status}  (record {self.seq})"
        return "\n".join([head, f"why   {self.why}", *(step.to_text() for step in self.steps)])


@dataclass(frozen=True, slots=True)
class RunReasons:
    """Why a run is where it is, and why each of its ended steps ran and led where it led."""

    run: str
    """The reason of the run, in one line."""
    steps: dict[int, StepExplanation]
    """Number of the record that ended a step -> its explanation."""
