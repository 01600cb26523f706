"""Handing runs over: an executor enqueues a run, and any executor that has its graph drives it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor.host.retention import RunRetention
from orchestrator.executor.host.start import new_run
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.limits import Limits
from orchestrator.stores.base import RunInfo, Schedule

if TYPE_CHECKING:
    from orchestrator.executor.host.work_queue import Driven
    from orchestrator.executor.host.worker_health import WorkerHealth
    from orchestrator.views.worker_info import WorkerInfo


class RunWorker(RunRetention):
    """Enqueues runs for any executor, and drives runs that were enqueued or left."""

    async def enqueue(
        self,
        graph: GraphDefinition | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        at: datetime | float | None = None,
    ) -> str:
        """Add a run to the store without driving it. A worker, `drive` or `recover` begins it.

        Its status is `running`: it waits to be taken up. The same id and input give the same run, so that a call whose
        outcome is unknown can be repeated. The other arguments are those of `start`.

        Args:
            graph: a graph, or the name of one of the executor's graphs.
            input: the value of the graph's `input` field, or a mapping of the fields that `input` names; see `Graph`.
            run_id: an id for the run.
            labels: labels of the run, to find it by.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits.
            refs: the names of graph, tools and model as text, for readers of the run.
            at: when the run is to begin, as a datetime with a time zone or in Unix seconds; None: at once.

        Returns:
            The run's id, as soon as the run is durable.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: `at` is no time.
            RunExists: another run has the id.
            GraphUnknown: a model or tool that the graph names is missing.
            StoreError: the run cannot be written.
        """
        from orchestrator.executor.host import work_queue

        due = work_queue.moment(at)
        new = await new_run(self._host, graph, input, run_id, labels, approve, limits, refs)
        return await work_queue.put(self._host, new, due)

    async def drive(self, run_id: str, *, wait: float = 0.0, health: WorkerHealth | None = None) -> Driven:
        """Go on with a run until it ends or pauses. For programs that deliver runs to workers by their own queue.

        Calling it again is safe: of an ended run, and of one that is to begin later, nothing is done. If this executor
        drives the run already, the call waits for that. A pause that a person asked for is not lifted.

        Args:
            run_id: the run's id.
            wait: seconds to wait for another executor that holds the run.
            health: what counts the drive, if this call drives the run.

        Returns:
            The run's status, and when to call again.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: another executor drives the run.
            GraphUnknown: the run's graph, or a model or tool of it, is missing here; another executor may have it.
            and the other errors of `resume`.
        """
        from orchestrator.executor.host import work_queue

        return await work_queue.drive(self._host, run_id, wait, health)

    def wind_down(self, run_id: str) -> bool:
        """Interrupt a run that this executor drives once the steps that run have ended: no other step begins.

        The run is given back then, and another executor may take it up.

        Returns:
            Whether this executor drives it.
        """
        live = self._host.live.get(run_id)
        if live is not None:
            live.wind_down()
        return live is not None

    async def work(
        self,
        *,
        slots: int = 20,
        poll: float = 1.0,
        graphs: Collection[str] | None = None,
        graph_slots: Mapping[str, int] | None = None,
        fair_by: str | None = None,
        eager: bool = True,
        stop: anyio.Event | None = None,
        grace: float = 10.0,
        drained: anyio.Event | None = None,
        health: WorkerHealth | None = None,
    ) -> None:
        """Take up runs of this executor's graphs that no executor drives, and drive them, until cancelled.

        These are runs that were enqueued, answered or interrupted, whose timer or deadline is due, and whose process
        died. Any number of workers can share a store: each run is driven by one. A run whose drive was given up, or
        whose process died, backs off: 1 second, doubled each time to 1 hour at most. After 5 times only `resume`
        continues it. A store that fails is asked again, less and less often.

        Cancelling the call interrupts the runs that it took up. So does SIGTERM. So does closing the executor, and
        the call returns then.

        Args:
            slots: how many runs this call drives at the same time.
            poll: seconds between two looks at the store, where it cannot tell when something is due.
            graphs: names of graphs whose runs are taken up; None: of all graphs of the executor.
            graph_slots: graph -> how many runs of it this call drives at the same time at most. Further ones are left
                to other workers.
            fair_by: the name of a label whose values take turns, such as `tenant`: when many runs with one value wait,
                a run with another value is not taken up behind them. None: the runs that wait longest come first.
            eager: whether runs are taken up when the store announces them, and timers when they are due. False: only
                every `poll` seconds, where an engine delivers runs and this call takes up what it does not deliver.
            stop: when it is set, no further run is taken up, and the call returns when its runs have been interrupted:
                each when the steps that run have ended.
            grace: seconds that these steps get.
            drained: the call is a worker that drains until this is set, too. For programs that also drive runs which
                an engine delivers, and whose steps end later.
            health: what probes and metrics of this call are read from.

        Raises:
            ValueError: `slots` or `poll` is out of range.
            InvalidValue: `graph_slots` or `fair_by` cannot be used.
            RuntimeError: the executor is not open, or has ended because of an error.
        """
        from orchestrator.executor.host import worker

        await worker.work(
            self._host, slots=slots, poll=poll, graphs=graphs, graph_slots=graph_slots, fair_by=fair_by, eager=eager,
            stop=stop or anyio.Event(), grace=grace, drained=drained, health=health,
        )  # fmt: skip

    async def workers(self) -> list[WorkerInfo]:
        """Return the executors that share the store: workers, and others that hold runs. Those that live come first.

        One that stopped as it should is gone from the list. One that died is in it for an hour at least.
        """
        from orchestrator.executor.host import worker_list

        return await worker_list.workers(self._host.store)

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        """Return runs that only `resume` continues, because 5 drives in a row died or were given up.

        Args:
            limit: the most runs to return, the longest parked first.
        """
        from orchestrator.executor.host import worker_list

        return await worker_list.parked(self._host.store, limit)

    async def schedule(
        self,
        graph: GraphDefinition | str,
        cron: str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        name: str | None = None,
        timezone: str = "UTC",
        catch_up: str = "skip",
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
    ) -> Schedule:
        """Have workers begin runs of a graph at times. The schedule is a row of the store; a time never fires twice.

        Scheduling the same again changes nothing; a schedule of the same name is replaced. One that is paused stays so.

        Args:
            graph: a graph, or the name of one of the executor's graphs.
            cron: minute, hour, day of month, month and day of week, such as `30 6 * * 1-5`; seconds may come first.
            input: the input of each run, see `start`.
            name: the schedule's name; the id of each run begins with it. None: the graph's name.
            timezone: the time zone of `cron`, such as `Europe/Vienna`.
            catch_up: which times that were missed by more than 60 s fire when a worker is there again: `skip`: none,
                `one`: the latest, `all`: the latest 1,000.
            labels: labels of each run, which also has the label `schedule` with the schedule's name.
            approve: approve calls of tools up to this risk without asking.

        Returns:
            The schedule, with its next time.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: another argument cannot be used.
            ImportError: the extra `schedule` is not installed.
        """
        from orchestrator.executor.host import scheduling

        return await scheduling.put(
            self._host, graph, cron, input, name=name, timezone=timezone, catch_up=catch_up, labels=labels,
            approve=approve,
        )  # fmt: skip

    async def schedules(self) -> list[Schedule]:
        """Return all schedules of the store, by name."""
        return await self._host.store.schedules()

    async def pause_schedule(self, name: str) -> Schedule | None:
        """Have no worker begin runs of a schedule until `resume_schedule`. None: there is none of this name."""
        from orchestrator.executor.host import scheduling

        return await scheduling.pause(self._host, name, paused=True)

    async def resume_schedule(self, name: str) -> Schedule | None:
        """Have workers begin runs of a schedule again. None: there is none of this name.

        Times that passed while it was paused were not missed: the next one is the first from now on.
        """
        from orchestrator.executor.host import scheduling

        return await scheduling.pause(self._host, name, paused=False)

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule. Its runs stay. Returns False if there is none of this name."""
        return await self._host.store.delete_schedule(name)
