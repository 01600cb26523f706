// The shapes of a run's data, as orchestrator/render/html/run_data.py writes them. There is no code here.
export {};

/** @typedef {"done" | "running" | "waiting" | "failed" | "dropped" | "interrupted" | "queued"} StepStatus */
/** @typedef {{ calls?: number, in?: number, out?: number, cost?: number, cached?: number, saved?: number, estimated?: boolean }} Usage */
/** @typedef {Record<string, any>} State  Fields of a state, as plain JSON. */
/** @typedef {Record<string, [string, any, ...any[]]>} Patch  Field -> how it changes (`=`, `+`, `~`) and what. */

/**
 * A traceback: the user's line that is nearest to the error, and its lines, those of libraries apart.
 * `left_out`: the lines are not there, because those of other tracebacks are too many.
 * @typedef {{ place: string, code: string, parts: [boolean, string][], left_out?: boolean }} Trace
 */

/**
 * A call of a model, a tool or a function.
 * @typedef {object} Call
 * @property {string} kind
 * @property {string} name
 * @property {number} seq
 * @property {string} [effect]
 * @property {[number, number | null]} t  Milliseconds since the start of the run.
 * @property {string} [inside]
 * @property {string[]} [messages]  Digests; `RunData.messagesOf` has all of a request.
 * @property {[number, number]} [behind]  They follow the messages of an earlier call: its record, and how many.
 * @property {string} [offer]
 * @property {any} [options]
 * @property {any} [args]
 * @property {number} [settled]
 * @property {boolean} [ok]
 * @property {boolean} [failed]
 * @property {any} [result]
 * @property {boolean} [replaced]  Of a call of the run that was forked: another request was made in its place.
 * @property {any} [instead]  Its reply there.
 * @property {string[]} [images]  Pictures of a tool's result, as data: addresses.
 * @property {string} [error]
 * @property {Trace} [trace]
 * @property {number} [tries]
 * @property {boolean} [unknown]
 * @property {Usage} [usage]
 */

/**
 * A question of a step, with its answer if there is one.
 * @typedef {object} Asked
 * @property {number} seq
 * @property {string} kind
 * @property {string} prompt
 * @property {Record<string, any>} [call]  The call that it is about.
 * @property {Record<string, any>} [shown]  What is shown beside it: fields of the state.
 * @property {any} [answer]
 * @property {string} [title]  The question in a few words.
 * @property {Record<string, string>} [outcomes]  What became of a call: the choices in words.
 * @property {string} [by]
 * @property {number} [answered]
 */

/**
 * A step: one activation of a node.
 * @typedef {object} Step
 * @property {string} node
 * @property {[string, string, string]} name  What it did, about what, and where.
 * @property {string} part  Id of its node in the picture.
 * @property {number} began  Record after which it began.
 * @property {[number, number | null]} t
 * @property {number} work  Seconds.
 * @property {StepStatus} status
 * @property {string} came
 * @property {string} [path]
 * @property {number} [seq]  Record that ended it.
 * @property {number} [up]  Step that it runs inside.
 * @property {number} [depth]
 * @property {[number, number]} [map]  Map and item that it works on.
 * @property {string} [outcome]
 * @property {string} [went]
 * @property {string[]} [took]  Ids of edges.
 * @property {string[]} [left]
 * @property {Record<string, boolean | string>} [guards]
 * @property {number} [attempt]
 * @property {number} [failed]
 * @property {boolean} [cached]
 * @property {string} [unasked]
 * @property {string} [error]
 * @property {Trace} [trace]
 * @property {[number, string, Trace | null][]} [retries]
 * @property {[string, number, number | null][]} [waits]
 * @property {Asked[]} [asked]
 * @property {Call[]} [calls]
 * @property {Usage} [usage]
 * @property {number} [base]
 * @property {Patch} [merged]
 * @property {Patch} [patch]
 */

/**
 * A map: the steps that a list of items was given to.
 * @typedef {object} RunMap
 * @property {number | null} source
 * @property {string} each
 * @property {string} target
 * @property {number} count
 * @property {[number, number] | null} around
 * @property {Record<string, string>} items
 */

/** @typedef {["message" | "turn" | "tool" | "question" | "compaction", number, (string | number)?]} Said  An entry of the
 *   transcript, its record, and the digest of its message or how many messages it replaced. */
/** @typedef {{ number: number, said: Said, node: string, message?: any, call?: Call, asked?: Asked }} Entry  An entry of the
 *   transcript with what is shown of it, from 1 on. */
/** @typedef {{ file: string, line: number, text: string, same: boolean }} NodeSource  `line`: number of the first one. */

/**
 * What a person wrote about a run, or about the step that a record ended.
 * @typedef {{ id: string, at: number, step?: number | null, text?: string, score?: number | null, name?: string, by?: string }} NoteData
 */

/**
 * The notes of a run: those of a mailed page are in it, those of a live page are on the server.
 * @typedef {object} NoteSource
 * @property {() => Promise<NoteData[]>} list  Rejects if the reader may not see them.
 * @property {(note: { step: number | null, text: string, score: number | null, name: string }) => Promise<NoteData>} [write]
 *   Absent: none can be written. Rejects with an error whose message a reader understands.
 * @property {(id: string) => Promise<void>} [remove]
 */

/** @typedef {[string, Record<string, string>?]} Mark  Classes, and texts by slot. */
/** @typedef {[number, Record<string, Mark>]} Moment  A record, and the marks of the parts that it changed. */

/**
 * A run.
 * @typedef {object} RunDocument
 * @property {string} run
 * @property {string} graph
 * @property {string} status
 * @property {boolean} [ended_diverged]  Whether it is a replay that ended where live calls would follow.
 * @property {string} why
 * @property {number} head  Number of the last record.
 * @property {number} [of]  Number of the last record that the server has: those behind `head` come later.
 * @property {number} start  Unix seconds of the first record: of a fork, that of its oldest ancestor.
 * @property {number} [forked]  Of a fork: milliseconds from there to its own beginning.
 * @property {number} seconds
 * @property {number} counted
 * @property {Usage} usage
 * @property {Record<string, number>} limits
 * @property {string} driver
 * @property {any} question
 * @property {any} output
 * @property {string | null} error
 * @property {Trace | null} trace  Of the error.
 * @property {number} [traces_left_out]  Number of tracebacks of steps and calls of which only the place is there.
 * @property {NoteData[]} [notes]  Of a mailed page.
 * @property {string[]} waiting
 * @property {Record<string, string>} labels
 * @property {string | null} archived  Where its records are, if they are in an archive.
 * @property {State} final
 * @property {string[]} types
 * @property {[number, number][]} records  Milliseconds, and number of a type.
 * @property {Step[]} steps
 * @property {Record<string, string>} kinds  Part -> kind of its node.
 * @property {Record<string, string>} edges  Part -> text of its edge.
 * @property {Record<string, number[]>} began  Part of an edge -> records that took it without a step.
 * @property {RunMap[]} maps
 * @property {State[]} whole
 * @property {Record<string, any>} messages
 * @property {Record<string, any[]>} offers
 * @property {Said[]} talk  The transcript.
 * @property {[number, number][]} idle
 * @property {{ classes: string[], start: Record<string, Mark>, moments: Moment[], end: boolean }} picture  `end`: whether
 *   the last moment is not of a record, but of a process that drives the run no more.
 * @property {number[]} [numbers]  Of a run that goes on: the number of each step, in the order in which they began.
 * @property {string} [version]  Of a run that goes on.
 */

/**
 * What became of a run since a version of it. Steps are named by their numbers. Of a list there are the number of things
 * at its beginning that are as they were, and those behind them.
 * @typedef {object} RunChange
 * @property {RunDocument} [whole]  All of it; there is nothing else then but perhaps the drawing.
 * @property {string} [drawing]  The picture, if it has other parts than before.
 * @property {Partial<RunDocument>} head
 * @property {any} [output]
 * @property {string[]} types
 * @property {[number, [number, number][]]} records
 * @property {[number, number, Step][]} steps  Its number, how many of its calls are as they were, and the step with the others.
 * @property {[number, number][]} work  Working times of further steps that have not ended.
 * @property {Record<string, string>} edges
 * @property {Record<string, [number, number[]]>} began
 * @property {[number, RunMap][]} maps  With items that are new.
 * @property {[number, State[]]} whole_states
 * @property {Record<string, any>} messages
 * @property {Record<string, any[]>} offers
 * @property {[number, Said[]]} talk
 * @property {[number, [number, number][]]} idle
 * @property {Moment[]} moments
 * @property {Moment | null} end
 * @property {Patch[]} final
 */
