// Drives a run with the real client of AG-UI, and checks every event with the schemas of `@ag-ui/core`. Arguments: the
// folder `node_modules`, the address of the agent, and `runs` if each message is a run of its own. What happened is told as
// JSON, an object a line.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, runs] = process.argv.slice(2);
const require = createRequire(join(modules, "here.js"));
const { HttpAgent, buildResumeArray, transformHttpEventStream, runHttpRequest } = require("@ag-ui/client");
const { EventSchemas } = require("@ag-ui/core/schemas");

const tell = (what, more) => console.log(JSON.stringify({ what, ...more }));
const CUT = "the connection broke";
process.on("unhandledRejection", (error) => {
  if (error.message !== CUT) throw error; // the client tells the error of its stream twice
});
let checked = 0;
let lastId = "";

/** A client that keeps the ids of the stream, and can be cut off after a number of pieces of text. */
class Agent extends HttpAgent {
  cutAfter = Infinity;
  constructor(threadId) {
    super({ url, threadId });
    this.fetch = async (address, init) => {
      const found = await fetch(address, init);
      return new Response(found.body.pipeThrough(watched(this)), { status: found.status, headers: found.headers });
    };
  }
  connect(input) {
    const headers = this.readOn ? { "Last-Event-ID": this.readOn } : {};
    return transformHttpEventStream(
      runHttpRequest(() => this.fetch(`${this.url}?threadId=${input.threadId}`, { headers })),
    );
  }
}

/** Checks events as they pass. */
function watched(agent) {
  let rest = "";
  let pieces = 0;
  const decoder = new TextDecoder();
  return new TransformStream({
    transform(chunk, out) {
      rest += decoder.decode(chunk, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const text of events) {
        if (pieces >= agent.cutAfter) return; // on its way when the connection broke
        const data = text.split("\n").find((line) => line.startsWith("data: "));
        if (data) {
          const event = EventSchemas.parse(JSON.parse(data.slice(6)));
          checked += 1;
          if (event.type === "TEXT_MESSAGE_CONTENT") pieces += 1;
        }
        lastId = text.split("\n").find((line) => line.startsWith("id: "))?.slice(4) ?? lastId;
        out.enqueue(new TextEncoder().encode(`${text}\n\n`));
        if (pieces >= agent.cutAfter) setTimeout(() => out.error(new Error(CUT)), 100); // what came is read first
      }
    },
  });
}

const shape = (agent) =>
  agent.messages.map((one) => [one.role, one.content ?? "", (one.toolCalls ?? []).map((call) => call.function.name)]);

async function say(agent, text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  return await agent.runAgent();
}

async function answer(agent, payload) {
  const responses = Object.fromEntries(agent.pendingInterrupts.map((one) => [one.id, { status: "resolved", payload }]));
  return await agent.runAgent({ resume: buildResumeArray(agent.pendingInterrupts, responses) });
}

const agent = new Agent("mine");
if (runs) {
  for (const text of ["1 and 2?", "3 and 4?", "Thanks."]) await say(agent, text);
  const late = new Agent("mine");
  await late.connectAgent();
  tell("answered", { messages: shape(agent), late: shape(late), ids: agent.messages.map((one) => one.id) });
  process.exit();
}
await say(agent, "Mail Ann.");
const [asked] = agent.pendingInterrupts;
tell("asked", { reason: asked.reason, message: asked.message, call: asked.toolCallId, schema: asked.responseSchema });
await answer(agent, { approved: true });
tell("approved", { messages: shape(agent), pending: agent.pendingInterrupts.length });

await say(agent, "Mail Bob.");
await answer(agent, { approved: true, editedArgs: { to: "bob@example.org", text: "edited" } });
tell("edited", { messages: shape(agent).slice(-2), state: agent.state });

await say(agent, "Mail Cy.");
await answer(agent, { approved: false, reason: "not him" });
tell("denied", { messages: shape(agent).slice(-2) });

// The connection breaks in the middle of a reply: the client reads on behind the last event that it has.
agent.cutAfter = 1; // a reader that comes late gets what came so far in one piece
await say(agent, "Talk.").catch((error) => tell("cut", { error: error.message }));
const broken = agent.messages.at(-1);
agent.cutAfter = Infinity;
agent.readOn = lastId;
const seen = [];
const watching = { onTextMessageContentEvent: ({ event }) => void (seen.push(event.delta) === 1 && tell("reconnected")) };
await agent.connectAgent({}, watching);
tell("whole", { broken: broken.content, messages: shape(agent).slice(-2), pieces: seen.length });

// A page is reloaded in the middle of a reply: a new client has nothing but the name of the thread.
agent.cutAfter = 1; // a reader that comes late gets what came so far in one piece
await say(agent, "Talk again.").catch(() => tell("left"));
agent.cutAfter = Infinity;
const reloaded = new Agent("mine");
let begun = 0;
await reloaded.connectAgent({}, { onTextMessageContentEvent: ({ event }) => {
  if (event.delta.includes("Again") && begun++ === 0) tell("reloaded");
} });
tell("same", { messages: shape(reloaded), ids: reloaded.messages.filter((one) => one.role !== "user").map((one) => one.id) });

// The other client comes back, too, and both go on with the same conversation.
await agent.connectAgent();
tell("both", { equal: JSON.stringify(shape(agent)) === JSON.stringify(shape(reloaded)) });
await say(reloaded, "Thanks.");
tell("end", { last: shape(reloaded).at(-1), checked });
