"""Evaluations: each row of data, with each graph and model, is a run of its own in the store.

A run's id follows from the evaluation's name, the graph, the models, the tools and the row's input. So an evaluation
that was interrupted continues when it is started again: what is settled is read, what was cut off is resumed, and only
what changed is run again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from orchestrator.comparison import compared_run
from orchestrator.errors import InvalidInput, InvalidValue, ModelError, OrchestratorError, RunUnknown
from orchestrator.evaluation.budget import Purse, check_prices, guarded
from orchestrator.evaluation.data import DataLike, DataSource, Fields, Row, RowFault, invalid, source_of
from orchestrator.evaluation.judges import GraphJudge, ScorerLike, scorers_of
from orchestrator.evaluation.kept import checked_name, keep
from orchestrator.evaluation.results import Evaluation, Progress, Tally, VariantResult, WrongCase, shown
from orchestrator.evaluation.scorers import AUTHOR, LABEL, Case, Scorer, Verdict, lacks, text_of, trajectory
from orchestrator.evaluation.variants import Options, Variant, identity_of, variants_of
from orchestrator.executor import Executor
from orchestrator.executor.failures import without_group
from orchestrator.json import digest
from orchestrator.kernel.status import FINAL
from orchestrator.memory import MemoryOptions
from orchestrator.models.offline.simulated import is_simulated
from orchestrator.models.prices import unpriced
from orchestrator.stores import Codec, open_store, with_codec
from orchestrator.tasks import away
from orchestrator.tools import ToolsLike, toolbox_of

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.graph.limits import Limits
    from orchestrator.graph_class import Graph
    from orchestrator.kernel.seals import Seal
    from orchestrator.models import Model
    from orchestrator.models.middleware import RateLimit
    from orchestrator.stores.base import Store

_SAVE = 5.0
"""Seconds between two writes of the result while an evaluation runs."""
_NAMED = 20
"""Changed rows that are named."""


class _Lane(NamedTuple):
    """A variant in one of its repeats, with the executor for its runs."""

    variant: Variant
    repeat: int
    executor: Executor


async def evaluate(
    data: DataLike,
    graphs: Graph | Sequence[Graph],
    *,
    models: Model | Mapping[str, Model] | None = None,
    node_models: Mapping[str, Model] | None = None,
    scorers: ScorerLike | Sequence[ScorerLike] = "exact",
    judge_model: Model | None = None,
    tools: ToolsLike = (),
    deps: object = None,
    store: str | Store = "memory://",
    name: str | None = None,
    fields: Fields | None = None,
    concurrency: int = 8,
    repeat: int = 1,
    budget: float | None = None,
    rate: RateLimit | None = None,
    seed: int | None = None,
    approve: str | None = None,
    limits: Limits | None = None,
    cache: bool = False,
    retry_failed: bool = False,
    codec: Codec | None = None,
    seal: Seal | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Evaluation:
    """Run graphs on rows of data, and score the answers.

    Started again with the same arguments it continues: no settled call is made again. The result is also kept in the
    store, for the page of `orchestrator serve`.

    Args:
        data: a `.jsonl` or `.csv` file, `arithmetic`, a collection of mappings, or `RecordedRuns`.
        graphs: the graphs.
        models: the compared models of nodes that name none: one, or several by name.
        node_models: named models, by the names that nodes use.
        scorers: names or functions. The first one decides whether a row is right.
        judge_model: the model of judges. Default: the first of `models`.
        tools: tools that nodes may call.
        deps: the value of `ctx.deps` in nodes.
        store: the store for the runs, or its URL.
        name: the evaluation's name. Default: the name of the data.
        fields: names of the fields of a row.
        concurrency: number of runs at the same time.
        repeat: how often each row is run with each variant.
        budget: what the whole evaluation may cost, with its earlier parts and its judges.
        rate: a limit of requests that holds for all rows together.
        seed: the seed of the statistics, from which also those of calls follow, for models whose provider takes one:
            each call of a run and of a repeat has its own, and has it again if it is repeated.
        approve: approve calls of tools up to this risk without asking.
        limits: limits of each run; the explicitly set fields replace those of its graph.
        cache: whether nodes with `cache=` use stored results.
        retry_failed: whether runs that failed in an earlier part get another attempt.
        codec: encrypts the values in the store.
        seal: seals the records of the runs.
        progress: called after each case.

    Returns:
        The figures of each variant, their differences, and the wrong rows.

    Raises:
        InvalidInput: rows cannot be used, or do not fit a graph; nothing was called.
        InvalidValue: an option cannot be used, two variants have the same name, or the price of a model is unknown and
            there is a budget.
        GraphUnknown: a graph needs a model or tool that is missing, or there is no scorer with a name.
    """
    options = Options(
        node_models=node_models or {}, tools=toolbox_of(tools), deps=deps, concurrency=concurrency, repeat=repeat,
        budget=budget, rate=rate, seed=seed, approve=approve, limits=limits, cache=cache, retry_failed=retry_failed,
        seal=seal, progress=progress,
    )  # fmt: skip
    compared = models if isinstance(models, Mapping) else {} if models is None else {"": models}
    source = source_of(data, fields)
    opened = open_store(store) if isinstance(store, str) else store
    kept = with_codec(opened, codec)
    try:
        work = EvaluationWork(
            checked_name(name or source.name.replace("/", "-")),
            source,
            variants_of(
                [graphs] if not isinstance(graphs, Sequence) else graphs, compared, options.node_models, options.tools
            ),
            scorers_of(scorers),
            judge_model or next(iter(compared.values()), None),
            options,
            kept,
        )
        return await work.run()
    finally:
        if isinstance(store, str):
            with anyio.CancelScope(shield=True):
                await kept.close()


class EvaluationWork:
    """An evaluation in progress."""

    def __init__(
        self,
        name: str,
        source: DataSource,
        variants: Sequence[Variant],
        scorers: Sequence[Scorer | GraphJudge],
        judge_model: Model | None,
        options: Options,
        store: Store,
    ) -> None:
        self.name, self.source, self.variants, self.options, self.store = name, source, variants, options, store
        self.scorers, self._judge_model = scorers, judge_model
        self._purse = Purse(inf if options.budget is None else options.budget)
        self._models = [one.model for one in variants if one.model is not None] + [*options.node_models.values()]
        if judge_model is not None and any(isinstance(one, GraphJudge) for one in scorers):
            self._models.append(judge_model)
        if options.budget is not None:
            check_prices(self._models)
        self._known: dict[str, str] = {}
        """Row -> its digest in an earlier part of the evaluation."""
        self._changed: list[str] = []
        self._changed_count = self._rows = self._taken = 0
        self._faults: dict[str, str] = {}
        """Scorer -> why it failed first."""
        self._began = self._saved = time.monotonic()

    async def run(self) -> Evaluation:
        """Evaluate all rows, and return the result."""
        await self._read_earlier()
        await self._check_data()
        with without_group():
            return await self._evaluate()

    async def _evaluate(self) -> Evaluation:
        tally = Tally([one.name for one in self.variants], self._rows, self.options.repeat)
        async with self._lanes() as lanes, self._judges():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_when_spent, tasks.cancel_scope)
                await self._run_cases(lanes, tally)
                tasks.cancel_scope.cancel()
            stopped = tally.outage
            if self._purse.over.is_set() and tally.done < self._cases:
                stopped = self._purse.stop
            found = await away(lambda: self._result(tally, stopped))
            await keep(lanes[0].executor, self.name, found.to_json(), ("wrong",))
            return found

    @property
    def _cases(self) -> int:
        return self._rows * len(self.variants) * self.options.repeat

    # -- before anything is called ------------------------------------------------------------------------------------

    async def _read_earlier(self) -> None:
        """Read which rows an earlier part of the evaluation had, and what it paid."""
        async with Executor(self.store) as executor:
            cursor: str | None = None
            while True:
                page = await executor.runs(labels={LABEL: self.name}, after=cursor, limit=200)
                for row in page.runs:
                    if row.parent is not None:
                        continue  # a fork or replay of a row
                    # The usage in the row of a run that was cut off may be a second old.
                    usage = row.usage if row.status in FINAL else (await executor.load(row.run_id)).usage
                    self._purse.spent += 0.0 if usage is None else usage.cost
                    if f"{LABEL}.row" in row.labels:
                        self._known.setdefault(row.labels[f"{LABEL}.row"], row.labels.get(f"{LABEL}.digest", ""))
                cursor = page.cursor
                if cursor is None:
                    break

    async def _check_data(self) -> None:
        """Read the data once: count its rows, and check that each can be run and scored.

        Raises:
            InvalidInput: rows cannot be used.
        """
        faults: list[RowFault] = []
        count = 0
        left = dict(self._known)
        async for entry in self.source.entries():
            fault = entry if isinstance(entry, RowFault) else self._fault(entry)
            if fault is not None:
                count += 1
                faults += [fault] if len(faults) < _NAMED else []
                continue
            assert isinstance(entry, Row)
            self._rows += 1
            before = left.pop(entry.key, None)
            if before is not None and before != entry.digest:
                which = (
                    "its input" if before.partition("-")[0] != entry.digest.partition("-")[0] else "what is expected"
                )
                self._note_change(f"row {entry.key!r}, line {entry.line}: {which} changed since an earlier part")
        for key in left:
            self._note_change(f"row {key!r} of an earlier part is no longer in the data")
        if count:
            raise invalid(self.source.name, faults, count)
        if not self._rows:
            raise InvalidInput(f"data {self.source.name!r} has no rows")

    def _fault(self, row: Row) -> RowFault | None:
        """Return why a row cannot be run by each graph, or scored; None if it can."""
        for scorer in self.scorers:
            if lacking := lacks(scorer.name, row):
                return RowFault(row.line, lacking)
        for variant in self.variants:
            try:
                variant.graph.initial(row.input)
            except InvalidInput as error:
                return RowFault(row.line, shown(str(error)))
        return None

    def _note_change(self, text: str) -> None:
        self._changed_count += 1
        if self._changed_count <= _NAMED:
            self._changed.append(text)

    # -- cases --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _lanes(self) -> AsyncIterator[list[_Lane]]:
        """Open an executor for each variant and repeat: two configurations of a graph have the same name."""
        async with AsyncExitStack() as opened:
            lanes = []
            for variant in self.variants:
                for repeat in range(1, self.options.repeat + 1):
                    executor = self._executor(variant.graph, variant.model, repeat)
                    lanes.append(_Lane(variant, repeat, await opened.enter_async_context(executor)))
            yield lanes

    @asynccontextmanager
    async def _judges(self) -> AsyncIterator[None]:
        """Give each judge an executor, with the judges' model."""
        async with AsyncExitStack() as opened:
            for judge in self.scorers:
                if isinstance(judge, GraphJudge):
                    executor = self._executor(judge.graph, self._judge_model, 1)
                    judge.open(
                        await opened.enter_async_context(executor),
                        self.name,
                        identity=identity_of(
                            judge.graph, self._judge_model, self.options.node_models, self.options.tools
                        ),
                        retry_failed=self.options.retry_failed,
                    )
            yield

    def _executor(self, graph: Graph, model: Model | None, repeat: int) -> Executor:
        options, seed = self.options, None if self.options.seed is None else self.options.seed + repeat - 1

        def own(one: Model) -> Model:
            return guarded(one, self._purse, options.rate, seed)

        return Executor(
            self.store,
            graphs=[graph],
            model=None if model is None else own(model),
            models={name: own(one) for name, one in options.node_models.items()},
            tools=options.tools,
            deps=options.deps,
            memory=MemoryOptions(cache=options.cache),
            seal=options.seal,
        )

    async def _stop_when_spent(self, scope: anyio.CancelScope) -> None:
        await self._purse.over.wait()
        scope.cancel()

    async def _run_cases(self, lanes: Sequence[_Lane], tally: Tally) -> None:
        """Run all cases, row by row, a few at a time."""
        send, receive = anyio.create_memory_object_stream[tuple[int, Row, _Lane]](0)

        async def work(cases: MemoryObjectReceiveStream[tuple[int, Row, _Lane]]) -> None:
            async with cases:
                async for index, row, lane in cases:
                    if not tally.outage:
                        await self._run_case(index, row, lane, tally)

        async with anyio.create_task_group() as tasks, send, receive:
            for _ in range(self.options.concurrency):
                tasks.start_soon(work, receive.clone())
            index = 0
            async for entry in self.source.entries():
                if tally.outage:
                    break
                if isinstance(entry, Row) and index < self._rows:  # the data may have changed since it was checked
                    for lane in lanes:
                        await send.send((index, entry, lane))
                    index += 1

    async def _run_case(self, index: int, row: Row, lane: _Lane, tally: Tally) -> None:
        executor, run_id, outage = lane.executor, self._run_id(row, lane), ""
        run = await self._settled(run_id, executor)
        taken = run is not None
        self._taken += taken
        if run is None:
            try:
                run = await self._run_row(run_id, row, lane)
            except ModelError as error:
                if not error.resumable:
                    raise
                run, outage = await executor.load(run_id), str(error)
        made = await compared_run(executor, run)
        records = await executor.store.read(run.run_id) if made.tool_calls or run.waiting else []
        case = Case(row, run, trajectory(records))
        verdicts, outage = await self._verdicts(case, outage)
        first = next(iter(verdicts.values()))
        if outage or not taken:
            tally.count_outage(lane.variant.name, outage)
        await self._write_note(executor, case, first, tally)
        reason = first.why or ("" if run.error is None else str(run.error))
        wrong = WrongCase(
            index, lane.variant.name, lane.repeat, row.key, row.line, run.run_id, run.status, shown(case.text),
            shown(text_of(row.expected)), shown(reason),
        )  # fmt: skip
        tally.add(wrong, made, verdicts)
        await self._report(executor, tally)

    def _run_id(self, row: Row, lane: _Lane) -> str:
        identity = [self.name, lane.variant.digest, row.key, row.input, lane.repeat, self.options.seed]
        return f"eval-{digest(identity)[:24]}"

    async def _settled(self, run_id: str, executor: Executor) -> Run | None:
        """Return the run of a case if an earlier part settled it, so that there is nothing to do."""
        try:
            status = (await self.store.info(run_id)).status
        except RunUnknown:
            return None
        settled = status == "completed" or (status in FINAL and not self.options.retry_failed)
        return await executor.load(run_id) if settled else None

    async def _run_row(self, run_id: str, row: Row, lane: _Lane) -> Run:
        """Return the run of a case, which is started, continued or tried again.

        Raises:
            ModelError: a model cannot be reached, so that the run is interrupted.
        """
        variant, options = lane.variant, self.options
        with suppress(RunUnknown):
            if (await self.store.info(run_id)).status in FINAL:
                return await lane.executor.resume(run_id, retry=True)
        return await lane.executor.start(
            variant.graph,
            row.input,
            run_id=run_id,
            labels={
                LABEL: self.name,
                f"{LABEL}.variant": variant.name,
                f"{LABEL}.row": row.key,
                f"{LABEL}.digest": row.digest,
                f"{LABEL}.repeat": str(lane.repeat),
                **({} if options.seed is None else {f"{LABEL}.seed": str(options.seed + lane.repeat - 1)}),
            },
            approve=options.approve,
            limits=options.limits,
            by=AUTHOR,
        )

    async def _verdicts(self, case: Case, outage: str) -> tuple[dict[str, Verdict], str]:
        """Return the verdict of each scorer, and what interrupted the run or a judge; empty if nothing did.

        A run that did not complete is always wrong, and so is one whose scorer fails: its calls are paid.
        """
        if case.run.status != "completed":
            why = ": ".join(filter(None, (f"the run is {case.run.status}", outage)))
            return {one.name: Verdict(0.0, why) for one in self.scorers}, outage
        found = {}
        for one in self.scorers:
            try:
                found[one.name] = await one.score(case)
            except OrchestratorError as error:
                if isinstance(error, ModelError) and error.resumable:
                    outage = str(error)
                elif isinstance(one, GraphJudge):
                    raise
                else:
                    self._faults.setdefault(one.name, str(error))
                found[one.name] = Verdict(0.0, f"{one.name} gave no verdict: {error}")
        return found, outage

    async def _write_note(self, executor: Executor, case: Case, verdict: Verdict, tally: Tally) -> None:
        """Write the score on the run, unless it is there; count the scores that people wrote on it."""
        name, score, run_id = self.scorers[0].name[:100], round(verdict.score, 6), case.run.run_id
        notes = await executor.notes.list(run_id)
        mine = [one for one in notes if one.by == AUTHOR and one.name == name]
        if not any(one.score == score for one in mine):
            for one in mine:
                await executor.notes.delete(run_id, one.id)
            expected = "" if case.row.expected is None else f"expected: {shown(text_of(case.row.expected))}"
            text = "; ".join(filter(None, (expected, shown(verdict.why))))
            with suppress(InvalidValue):  # people wrote as many notes as a run can have
                await executor.notes.write(run_id, text, score=score, name=name, by=AUTHOR)
        people = [one.score for one in notes if one.by != AUTHOR and one.step is None and one.score is not None]
        if people:
            tally.people.append((verdict.passed, sum(people) / len(people) >= 0.5))

    # -- results ------------------------------------------------------------------------------------------------------

    async def _report(self, executor: Executor, tally: Tally) -> None:
        now = time.monotonic()
        if self.options.progress is not None:
            self.options.progress(
                Progress(
                    tally.done, self._cases, self._taken, now - self._began, self._purse.spent, self.options.budget
                )
            )
        if now - self._saved >= _SAVE and tally.done < self._cases:
            self._saved = now
            now_known = tally.copy()  # cases go on while a thread reads it
            so_far = await away(lambda: self._result(now_known, "it is running, or was interrupted", pairs=False))
            await keep(executor, self.name, so_far.to_json(), ("wrong",))

    def _result(self, tally: Tally, stopped: str, *, pairs: bool = True) -> Evaluation:
        more = self._changed_count - len(self._changed)
        return Evaluation(
            name=self.name,
            data=self.source.name,
            scorers=tuple(one.name for one in self.scorers),
            variants=tuple(self._figures(one, tally) for one in self.variants),
            differences=tally.differences(self.options.seed or 0) if pairs else (),
            wrong=tally.wrong(),
            wrong_count=tally.wrong_count,
            rows=self._rows,
            cases=self._cases,
            done=tally.done,
            taken=self._taken,
            cost=self._purse.spent,
            interrupted=tally.interrupted,
            stopped=stopped,
            outage=bool(tally.outage),
            changed=(*self._changed, *([f"and {more:,} more changed rows"] if more else [])),
            remarks=(*getattr(self.source, "remarks", ()), *map(shown, [*self._faults.values()])),
            agreement=tally.agreement(),
            simulated=any(map(is_simulated, self._models)),
            updated=time.time(),
            verdicts=tally,
        )

    def _figures(self, variant: Variant, tally: Tally) -> VariantResult:
        models = [*([] if variant.model is None else [variant.model]), *self.options.node_models.values()]
        return tally.result(variant.name, variant.graph.name, variant.model_name, priced=not any(map(unpriced, models)))
