"""Replaying runs: what another graph, another prompt or another model would have changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from orchestrator.executor.host.control import RunControl
from orchestrator.graph.definition import GraphDefinition
from orchestrator.models.base import Model

if TYPE_CHECKING:
    from orchestrator.executor.host.replay_batches import ReplayBatch
    from orchestrator.executor.tape import Live
    from orchestrator.views.replay_result import Replay


class RunReplaying(RunControl):
    """Replays runs from their journals. The replayed runs are not changed."""

    async def replay(
        self,
        run_id: str,
        /,
        graph: GraphDefinition | str | None = None,
        models: Mapping[str, Model] | None = None,
        update: Mapping[str, object] | None = None,
        answer: object = None,
        result: object = None,
        *,
        at: int | None = None,
        approve: str | None = None,
        context: object = None,
        live: Live = "never",
        replay_id: str | None = None,
        by: str = "",
        digests: Collection[str] | None = None,
    ) -> Replay:
        """Run a run once more, with the results of its calls, and its answers, from its journal.

        A call takes its result from the journal if the run made the same call at the same node in the same branch,
        with the same request, as often before. A step that asks anything else is live, and so is all that it causes;
        other branches are not. Nodes themselves run, so a node that touches the outside without `ctx` does so again.

        Args:
            run_id: the id of the run to replay. A fork is replayed from where it was forked.
            graph: another version of the graph, another graph, or a graph's name. None: the version that the run has,
                if the executor has it, else the newest one.
            models: models to replace those of the run, by the names that nodes use; `default` for nodes that name none.
                Without this, replies count whatever model the executor has; with `live="never"` it needs none.
            update: fields of the state that the run began with, and other values for them; with `at` as of `fork`.
            answer: another answer in place of the one in record `at`, or of the only one.
            result: another result in place of the one in record `at`, or of the only one; see `fork`.
            at: the record behind which the replay begins, with those before it as they are; 0: the beginning. None: the
                record whose answer or result is replaced, or where a fork was forked; of a run that moved to this
                version of its graph, the last such record, unless `update` is given; else the beginning.
            approve: approve live calls of tools up to this risk without asking, except irreversible ones; the policy of
                the run is not taken over.
            context: the value of `ctx.context` in nodes, for a run that was begun with one.
            live: what to do where the run is live. `never`: the replay ends there as `diverged`, and nothing is called.
                `ask`: a person is asked before each call, of models too. `always`: calls are made, except that
                irreversible ones, and those that a confirm of the graph asks about, are asked about.
            replay_id: an id for the replay. The same id and the same replay mean the same run.
            by: who makes it and gives `answer`, for the journal.
            digests: see `fork`.

        Returns:
            What the replay came to, when it ends or pauses. `replayed` tells it later, when questions were answered.

        Raises:
            RunUnknown: the store has no such run.
            InvalidInput, InvalidUpdate, InvalidAnswer, InvalidValue: what is changed does not fit the run.
            GraphChanged: the run cannot go on in the graph at record `at`.
            RunExists: another run has the id `replay_id`.
            ContextMissing: the run was begun with a context, and none is given or made.
            GraphUnknown: the graph, a tool that it names, or a model for a live call is missing.
            StoreError, RunConflict: the journal cannot be written; the replay can be resumed.
        """
        from orchestrator.executor.host.replays import Order, replay

        return await replay(
            self._host,
            Order(run_id, live, graph, models, update, replay_id, at, answer, result, approve, context, by, digests),
        )

    def begin_replays(
        self,
        runs: Mapping[str, str],
        /,
        graph: GraphDefinition | str | None = None,
        *,
        at: int | None = None,
        approve: str | None = None,
        live: Live = "never",
        concurrency: int = 2,
    ) -> ReplayBatch:
        """Begin to replay many runs in the background, a few at a time, and return at once.

        A run that cannot be replayed does not stop the others. What each replay came to `replayed` tells. The same ids
        and the same replays mean the same runs: those that are over are not replayed again, and those that were
        interrupted go on.

        Args:
            runs: the id of each run -> the id of its replay.
            graph: see `replay`.
            at: see `replay`.
            approve: see `replay`.
            live: see `replay`.
            concurrency: how many replays run at the same time.

        Returns:
            The replays, with how far each is, and `stop` and `wait`. Leaving the executor stops them.

        Raises:
            ValueError: an argument has no meaning.
        """
        from orchestrator.executor.host.replay_batches import ReplayBatch
        from orchestrator.executor.host.replays import Order, check_manner

        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency!r}: use 1 or more")
        check_manner(live, approve, at)
        batch = ReplayBatch(runs)
        order = Order("", live, graph, at=at, approve=approve)
        self._host.background().start_soon(batch.drive, self._host, order, concurrency)
        return batch

    async def replayed(self, run_id: str) -> Replay:
        """Return what a replay has come to by now.

        Args:
            run_id: the id of the replay.

        Returns:
            The replay, compared with the run that it replays.

        Raises:
            RunUnknown: the store does not have the replay, or the run that it replays.
            InvalidValue: the run is not a replay.
        """
        from orchestrator.executor.host.replays import replayed

        return await replayed(self._host, run_id)
