"""The execution rules, as pure functions over the state of a run.

**The law.** A run's state is the fold of its records: `apply(run, record)`, one handler for each record type. The same
records always give the same state, in every process and later version. So nothing here does input or output, reads a
clock or draws a random number: records contain times and ids, and all other ids are hashes of their causes.

**Facts are data.** `RunState` holds the facts about a run, `FrameState` those about each running graph in it,
`Activation` those about each token; versions, ranks and records are immutable. Functions change the facts, and each
calls only modules below its own:

| module | what it does |
|---|---|
| `fold` | hands a record to its handler, then admits what may start; `fold.steps` has the short way of a lone step |
| `migration` | a run's move to another version of its graph |
| `admission` | which queued activations may start under the limits and breakpoints (R13, R14) |
| `reopening` | puts the tokens of an ended run back (R13, R14) |
| `frame` | a graph from its first token to its result (R9, R14, R15) |
| `transitions` | the edges of an outcome, forks, maps (R1, R3, R9 to R12) |
| `joins` | what waits for other tokens (R4, R5, R8) |
| `endings` | dropped tokens, graphs that end, graphs that are frozen (R13) |
| `tokens` | the live tokens, and which joins they can still reach (R4) |
| `version`, `merge` | states as versions: commits, merges, conflicts, order (R6, R7) |
| `pools`, `ledger` | places in pools (R18), calls under way, and the effects of running steps |
| `run_state`, `state`, `plan`, `event_queue`, `records`, `question`, `status` | the facts |

`queries` answers questions about a run, `limits` those about its limits, `snapshot` writes a state as JSON and reads it
back, and an `Observer` in `run_state` is notified of each step of a fold. `docs/kernel.md` has the rules R1 to R18.
"""
