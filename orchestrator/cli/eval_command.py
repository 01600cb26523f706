"""The command `eval`: run graphs on rows of data, and score the answers."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from msgspec import structs

from orchestrator.cli import exits, options, signals, storage
from orchestrator.cli.graph_refs import absolute, importing
from orchestrator.cli.launch_refs import Code, Given, load_model, named_models
from orchestrator.cli.output import out, out_json, out_table, redacted, warn
from orchestrator.cli.run_session import closing_model
from orchestrator.cli.trust import journal_seal
from orchestrator.evaluation import Fields, GraphJudge, RecordedRuns, counterfactual, evaluate
from orchestrator.evaluation.reports import to_junit, to_svg
from orchestrator.evaluation.results import COLUMNS, Evaluation
from orchestrator.evaluation.scorers import Scorer, scorer_of
from orchestrator.evaluation.variants import variants_of
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.models.middleware import RateLimit
from orchestrator.render.terminal.tables import Column
from orchestrator.spelling import did_you_mean

if TYPE_CHECKING:
    from orchestrator.evaluation import Counterfactual, Progress
    from orchestrator.evaluation.scorers import ScoreFunction
    from orchestrator.models import Model

_WRONG = 10
"""Wrong rows that are printed."""
_SHOWN = 50
"""Changed answers that are printed."""
_EVERY = 10.0
"""Seconds between two lines of progress if stderr is no terminal."""


@dataclass(frozen=True)
class Models:
    """Options that name models."""

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]REF",
            help="A model to compare, as for `run`; NAME is what tables call it. Repeatable.",
        ),
    ] = None
    node_model: Annotated[
        list[str] | None,
        typer.Option("--node-model", metavar="NAME=REF", help="The model of nodes that use this name. Repeatable."),
    ] = None
    judge_model: Annotated[
        str | None,
        typer.Option("--judge-model", metavar="REF", help="The model of judges. Default: the first --model."),
    ] = None

    def compared(self) -> dict[str, str]:
        """Return the references of the models to compare, by the names that tables show: those given, else themselves.

        Raises:
            UsageError: a name occurs twice.
        """
        found: dict[str, str] = {}
        for one in self.model or ():
            for name, ref in named_models([one]).items():
                key = name or one
                if key in found:
                    raise exits.UsageError(f"--model {one}: {key!r} is given twice")
                found[key] = ref
        return found

    def of_nodes(self) -> dict[str, str]:
        """Return name -> reference of the models of nodes.

        Raises:
            UsageError: one has no name.
        """
        found: dict[str, str] = {}
        for name, ref in named_models(self.node_model or ()).items():
            if name is None:
                raise exits.UsageError(f"--node-model {ref}: write NAME=REF")
            found[name] = ref
        return found


@dataclass(frozen=True)
class Named:
    """Options that name the evaluation and the fields of rows."""

    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The evaluation's name. Default: that of the data.")
    ] = None
    id_field: Annotated[str, typer.Option("--id", metavar="FIELD", help="The field with a row's id.")] = "id"
    input_field: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FIELD", help="The field with a row's input. Default: input, question or prompt."
        ),
    ] = None
    expected_field: Annotated[
        str | None,
        typer.Option(
            "--expected",
            metavar="FIELD",
            help="The field with the right answer. Default: expected, answer, target or output.",
        ),
    ] = None

    def fields(self) -> Fields:
        """Return the names."""
        return Fields(self.id_field, self.input_field, self.expected_field)


@dataclass(frozen=True)
class Recorded:
    """Options that choose recorded runs, and replay them."""

    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="With runs: only runs with this label. Repeatable."),
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="With runs: only runs started since: an age or a date.")
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="With runs: the newest N at most.")
    ] = None
    replay: Annotated[
        bool,
        typer.Option("--replay", help="With runs: replay them with GRAPH, and make only the calls that it changes."),
    ] = False

    def source(self, data: str, url: str) -> str | RecordedRuns:
        """Return the data: recorded runs for `runs` and `runs:GRAPH`, else the name of a file.

        Raises:
            UsageError: options for recorded runs are given with other data.
        """
        kind, _, graph = data.partition(":")
        if kind != "runs":
            if self.label or self.since or self.limit or self.replay:
                raise exits.UsageError(
                    "--label, --since, --limit and --replay are for recorded runs: runs or runs:GRAPH"
                )
            return data
        since = None if self.since is None else options.moment(self.since, "--since").timestamp()
        codec = storage.codec_of_environment()
        return RecordedRuns(graph or None, url, options.pairs(self.label), since, self.limit, codec)


@dataclass(frozen=True)
class Bounds:
    """Options that bound an evaluation."""

    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Runs at the same time.")] = 8
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="How often each row is run.")] = 1
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="COST", help="What the whole evaluation may cost, with judges. It stops in time."
        ),
    ] = None
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="Requests in a minute, for all rows together.")
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Seed of models whose provider takes one, and of intervals."),
    ] = None
    cached: Annotated[bool, typer.Option("--cache", help="Use stored results of nodes with cache=.")] = False
    retry: Annotated[bool, typer.Option("--retry", help="Give runs that failed before another attempt.")] = False


@dataclass(frozen=True)
class Reports:
    """Options for what becomes of the result."""

    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="[VARIANT=]SHARE",
            help="Exit code 1 if the accuracy of a variant, or of any, is below this. Repeatable.",
        ),
    ] = None
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML to FILE.")] = None
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture of cost and accuracy to FILE.")
    ] = None

    def required(self) -> dict[str, float]:
        """Return variant -> required accuracy; the name "" is for all.

        Raises:
            UsageError: a value is not a share.
        """
        found = {}
        for one in self.require or ():
            name, _, share = one.rpartition("=")
            try:
                found[name] = float(share)
            except ValueError:
                found[name] = -1.0
            if not 0 <= found[name] <= 1:
                raise exits.UsageError(f"--require {one}: use a share from 0 to 1, such as 0.8 or react=0.8")
        return found

    def check_variants(self, names: Sequence[str]) -> None:
        """Check, before anything is paid, that there are the variants of which an accuracy is required.

        Raises:
            UsageError: one is unknown.
        """
        for one in self.required():
            if one and one not in names:
                raise exits.UsageError(
                    f"--require {one}=...: there is no such variant{did_you_mean(one, names) or ';'} there are "
                    f"{', '.join(map(repr, names))}"
                )

    def check_files(self) -> None:
        """Check, before anything is paid, that the files can be written.

        Raises:
            UsageError: there is no such directory, or the file is one.
        """
        for option, file in (("--junit", self.junit), ("--svg", self.svg)):
            if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
                raise exits.UsageError(f"{option} {file}: give a file in a directory that exists")

    def write(self, found: Evaluation) -> None:
        """Write the files."""
        for file, text in ((self.junit, to_junit), (self.svg, lambda one: to_svg(one.variants))):
            if file is not None:
                file.write_text(text(found), encoding="utf-8")
                warn(f"wrote {file}")


def eval_(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .jsonl or .csv file; arithmetic, a sample; runs or runs:GRAPH, recorded runs of the store.",
            show_default=False,
        ),
    ],
    graphs: Annotated[
        list[str], typer.Argument(metavar="GRAPH...", help="The graphs, named as for `run`.", show_default=False)
    ],
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            "--scorer",
            metavar="NAME",
            help="exact, contains, number, json, calls, order, arguments, confirmations, judge:GRAPH or module:attr. "
            "The first one decides. Repeatable. Default: exact.",
        ),
    ] = None,
    *,
    models: Models,
    named: Named,
    recorded: Recorded,
    bounds: Bounds,
    reports: Reports,
    tools: options.Tools = None,
    trust: options.Trust = None,
    approve: options.Approve = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Run graphs on rows of data, and score the answers.

    Each row is a run in the store. The same command continues an evaluation that was interrupted, and pays for no call
    twice. Exit code 1 below --require, 5 if the budget is spent, 8 if a model could not be reached several times in a
    row.

    Example: orchestrator eval arithmetic react rewoo --scorer number --approve none
    """
    reports.check_files()
    required, url = reports.required(), storage.store_url(store)
    code = _Code.of(graphs, tools, trust, models)
    scorers = [_scorer(one, trust) for one in scorer or ("exact",)]
    risk, source = options.risk(approve), recorded.source(data, url)
    if recorded.replay and isinstance(source, RecordedRuns):
        _check_replay(bounds, reports, required, scorers)
        return _replay(source, code, scorers[0], bounds, required, risk, named.name, json=json)
    reports.check_variants(code.variants())
    found = _evaluated(source, code, scorers, named, bounds, url, risk)
    if found is None:
        return exits.INTERRUPTED
    out_json(redacted(found.to_json())) if json else _show(found)
    reports.write(found)
    below = found.below(required)
    for one in below:
        warn(f"--require: {one}")
    if found.outage:
        return exits.UNAVAILABLE
    return exits.FAILED if below else exits.EXHAUSTED if found.stopped else exits.COMPLETED


def _evaluated(
    source: str | RecordedRuns,
    code: _Code,
    scorers: Sequence[Scorer | GraphJudge],
    named: Named,
    bounds: Bounds,
    url: str,
    risk: str | None,
) -> Evaluation | None:
    """Evaluate, with progress on stderr; None: the user interrupted it."""
    progress = _Line()

    async def work() -> Evaluation:
        async with code.closing():
            return await evaluate(
                source,
                [one.graph for one in code.codes],
                models=code.models,
                node_models=code.node_models,
                scorers=scorers,
                judge_model=code.judge,
                tools=code.codes[0].tools,
                store=url,
                name=named.name,
                fields=named.fields(),
                concurrency=bounds.concurrency,
                repeat=bounds.repeat,
                budget=bounds.budget,
                rate=None if bounds.rate is None else RateLimit(bounds.rate),
                seed=bounds.seed,
                approve=risk,
                cache=bounds.cached,
                retry_failed=bounds.retry,
                codec=storage.codec_of_environment(),
                seal=journal_seal(url, make=True),
                progress=progress.show,
            )

    try:
        return signals.run_async(work)
    except signals.Interrupted:
        progress.end()
        warn("interrupted; the same command continues the evaluation")
        return None
    finally:
        progress.end()


@dataclass(frozen=True)
class _Code:
    """The graphs and models of an evaluation."""

    codes: list[Code]
    models: dict[str, Model]
    node_models: dict[str, Model]
    judge: Model | None

    @classmethod
    def of(cls, graphs: Sequence[str], tools: list[str] | None, trust: list[str] | None, models: Models) -> _Code:
        """Import the code.

        Args:
            graphs: references of the graphs.
            tools: references of tools.
            trust: modules whose code graph files may name.
            models: the references of models; without any, the default model is used.

        Raises:
            GraphUnknown: a reference is unknown.
            UsageError: a module cannot be imported, or names of models are missing or occur twice.
        """
        compared, judge = models.compared(), models.judge_model
        first = [*compared.values()][:1]
        launches = [Given.of(one, tools, first, trust).new() for one in graphs]
        codes = [launch.load() for launch in launches[:1]] + [launch.quiet().load() for launch in launches[1:]]
        return cls(
            codes,
            {name: load_model(ref) for name, ref in compared.items()} or {"": codes[0].model},
            {name: load_model(ref) for name, ref in models.of_nodes().items()},
            None if judge is None else load_model(absolute(judge)),
        )

    def variants(self) -> list[str]:
        """Return the names of the variants.

        Raises:
            InvalidValue: two have the same name.
        """
        graphs = [one.graph for one in self.codes]
        return [one.name for one in variants_of(graphs, self.models, self.node_models, self.codes[0].tools)]

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close all models at the end."""
        async with AsyncExitStack() as stack:
            for one in (
                *self.models.values(),
                *self.node_models.values(),
                *([] if self.judge is None else [self.judge]),
            ):
                await stack.enter_async_context(closing_model(structs.replace(self.codes[0], model=one, models={})))
            yield


def _scorer(given: str, trust: list[str] | None) -> Scorer | GraphJudge:
    """Return a scorer by its reference.

    Raises:
        GraphUnknown: there is no such scorer, or no such graph of a judge.
        UsageError: a module cannot be imported, or its attribute is no scorer.
    """
    if given.startswith("judge:"):
        code: Code = Given.of(given.removeprefix("judge:"), None, ["offline"], trust).new().quiet().load()
        return GraphJudge(code.graph)
    module, colon, attr = given.partition(":")
    if not colon:
        return scorer_of(given)
    with importing(f"scorer {given}"):
        function = attribute(module_of_file(absolute(module)), attr) if module.endswith(".py") else resolve(given)
    if not callable(function):
        raise exits.UsageError(f"--scorer {given}: it is a {type(function).__name__}: name a function of a case")
    return Scorer(attr, cast("ScoreFunction", function))


def _check_replay(
    bounds: Bounds,
    reports: Reports,
    required: Mapping[str, float],
    scorers: Sequence[Scorer | GraphJudge],
) -> None:
    """Refuse options that say nothing about replays.

    Raises:
        UsageError: one is given.
    """
    given = {
        "--junit": reports.junit,
        "--svg": reports.svg,
        "--repeat": bounds.repeat > 1,
        "--seed": bounds.seed is not None,
        "--cache": bounds.cached,
        "--retry": bounds.retry,
        "--require with a VARIANT": any(required),
        "several --scorer": len(scorers) > 1,
    }
    for option, value in given.items():
        if value:
            raise exits.UsageError(f"{option} is not for --replay: leave it out")


def _replay(
    runs: RecordedRuns,
    code: _Code,
    scorer: Scorer | GraphJudge,
    bounds: Bounds,
    required: Mapping[str, float],
    risk: str | None,
    name: str | None,
    *,
    json: bool,
) -> int:
    """Replay recorded runs with a graph, and print what changed.

    Raises:
        UsageError: there are several graphs or models, or the scorer is a judge.
    """
    if len(code.codes) > 1 or len(code.models) > 1:
        raise exits.UsageError("--replay takes one GRAPH and one --model")
    if isinstance(scorer, GraphJudge):
        raise exits.UsageError("--replay compares answers with the recorded ones: use a --scorer that is no judge")

    async def work() -> Counterfactual:
        async with code.closing():
            return await counterfactual(
                runs,
                code.codes[0].graph,
                model=next(iter(code.models.values())),
                models=code.node_models,
                scorer=scorer,
                tools=code.codes[0].tools,
                concurrency=bounds.concurrency,
                budget=bounds.budget,
                rate=None if bounds.rate is None else RateLimit(bounds.rate),
                approve=risk,
                seal=journal_seal(storage.store_url(str(runs.store)), make=True),
                name=name,
            )

    try:
        found = signals.run_async(work)
    except signals.Interrupted:
        warn("interrupted; the same command continues")
        return exits.INTERRUPTED
    if json:
        out_json(redacted(found.to_json()))
    else:
        _show_replays(found)
    need = required.get("")
    if need is not None and found.share_kept < need:
        warn(f"--require: {found.share_kept:.1%} of the answers stayed, which is below {need:.1%}")
        return exits.FAILED
    return exits.EXHAUSTED if found.stopped else exits.COMPLETED


def _show_replays(found: Counterfactual) -> None:
    out("\n".join(str(redacted(line)) for line in found.notes()))
    rows = [*found.changed, *found.failed]
    if rows:
        out("")
        names = ("run", "people", "result", "answer before", "answer after", "replay")
        least = {"answer before": 13, "answer after": 13}
        changed = {id(one) for one in found.changed}
        cells = [
            (one.run_id, one.people, "changed" if id(one) in changed else one.status, one.before, one.after or one.why,
             one.replay_id)
            for one in rows[:_SHOWN]
        ]  # fmt: skip
        said = [[" ".join(str(redacted(cell)).split()) for cell in row] for row in cells]
        out_table([Column(one, least.get(one)) for one in names], said)
        if len(rows) > _SHOWN:
            out(f"and {len(rows) - _SHOWN:,} more: --json lists them")


class _Line:
    """Progress on stderr: one line that is rewritten on a terminal, else a line from time to time."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._open = False

    def show(self, progress: Progress) -> None:
        """Show the progress, unless it was shown just now."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self._last < (0.2 if terminal else _EVERY):
            return
        self._last = now
        text = progress_text(progress)
        if terminal:
            self._open = True
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
        else:
            warn(text)

    def end(self) -> None:
        """End the line."""
        if self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False


def progress_text(progress: Progress) -> str:
    """Return the progress as a line."""
    parts = [f"{progress.done:,} of {progress.cases:,} ({progress.done / progress.cases:.0%})"]
    if progress.rate:
        parts.append(f"{progress.rate:.1f} a second")
    of = "" if progress.budget is None else f" of {progress.budget:g}"
    parts.append(f"cost {progress.cost:.4f}{of}")
    if progress.left is not None:
        parts.append(f"{_span(progress.left)} left")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _show(found: Evaluation) -> None:
    columns = [Column(name, least=12 if not at else None, right=bool(at)) for at, name in enumerate(COLUMNS)]
    out_table(columns, [one.cells() for one in found.variants])
    out("\n" + "\n".join(str(redacted(line)) for line in found.notes()))
    if found.wrong:
        out("")
        names = ("wrong row", "variant", "answer", "expected", "run")
        least = {"answer": 12, "expected": 12, "variant": 8, "wrong row": 8}
        rows = [(one.row, one.variant, one.answer or one.why, one.expected, one.run_id) for one in found.wrong[:_WRONG]]
        said = [[" ".join(str(redacted(cell)).split()) for cell in row] for row in rows]
        out_table([Column(one, least.get(one)) for one in names], said)
        if found.wrong_count > _WRONG:
            out(f"and {found.wrong_count - _WRONG:,} more: `orchestrator runs --label evaluation={found.name}`")
