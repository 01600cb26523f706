// Talks to a graph with the chat of the AI SDK: its transport, its reader of streams, its approvals. Arguments: the folder
// `node_modules`, the address of the application, and `runs` if each message is a run of its own. What happened is told as
// JSON, an object a line.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, runs] = process.argv.slice(2);
const require = createRequire(join(modules, "here.js"));
const {
  AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, readUIMessageStream,
  uiMessageChunkSchema, asSchema,
} = require("ai");
const tell = (what, more) => console.log(JSON.stringify({ what, ...more }));

class State {
  status = "ready";
  error = undefined;
  constructor(messages) { this.messages = messages; }
  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (value) => structuredClone(value);
}

let checked = 0;
/** Looks at each event of a stream as it passes, and checks it with the schema of the package. */
async function watching(address, init) {
  const found = await fetch(address, init);
  if (!found.headers.get("content-type")?.startsWith("text/event-stream")) return found;
  if (found.headers.get("x-vercel-ai-ui-message-stream") !== "v1") throw new Error("the header is missing");
  let rest = "";
  const decoder = new TextDecoder();
  const schema = asSchema(uiMessageChunkSchema);
  const watched = new TransformStream({
    async transform(chunk, out) {
      rest += decoder.decode(chunk, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const text of events) {
        const data = text.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
        if (data === undefined || data === "[DONE]") continue;
        const valid = await schema.validate(JSON.parse(data));
        if (!valid.success) throw valid.error;
        checked += 1;
      }
      out.enqueue(chunk);
    },
  });
  return new Response(found.body.pipeThrough(watched), { status: found.status, headers: found.headers });
}

const transport = () => new DefaultChatTransport({ api: url, fetch: watching });
const chatOf = (id, messages = []) => new (class extends AbstractChat {})({
  id, state: new State(messages), transport: transport(), generateId: () => crypto.randomUUID(),
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  onError: (error) => tell("error", { message: error.message.slice(0, 300) }),
});
const shape = (message) => message.parts.filter((part) => part.type !== "step-start").map((part) =>
  part.type.startsWith("tool-") ? [part.type, part.state, part.output ?? part.errorText ?? ""] : [part.type, part.text ?? part.data?.prompt ?? part.data]);
const settled = async (chat) => {
  while (chat.status === "submitted" || chat.status === "streaming") await new Promise((done) => setTimeout(done, 20));
};

const chat = chatOf("mine");
if (runs) {
  for (const text of ["1 and 2?", "3 and 4?", "Thanks."]) await chat.sendMessage({ text });
  const { messages } = await (await fetch(`${url}mine`)).json();
  tell("answered", { messages: chat.messages.map(shape), page: messages.map(shape), ids: messages.map((one) => one.id) });
  process.exit();
}
await chat.sendMessage({ text: "Mail Ann." });
tell("asked", { parts: shape(chat.lastMessage), status: chat.status });
const approval = (of) => of.lastMessage.parts.findLast((part) => part.state === "approval-requested").approval;
await chat.addToolApprovalResponse({ id: approval(chat).id, approved: true });
await settled(chat);
tell("approved", { parts: shape(chat.lastMessage), messages: chat.messages.length });

await chat.sendMessage({ text: "Mail Bob." });
const edited = { approved: true, editedArgs: { to: "bob@example.org", text: "edited" } };
await chat.sendMessage(undefined, { body: { answers: [{ id: approval(chat).id, payload: edited }] } });
tell("edited", { parts: shape(chat.lastMessage), input: chat.lastMessage.parts.find((part) => part.toolCallId).input });

await chat.sendMessage({ text: "Mail Cy." });
await chat.addToolApprovalResponse({ id: approval(chat).id, approved: false, reason: "not him" });
await settled(chat);
tell("denied", { parts: shape(chat.lastMessage) });

// The page is reloaded in the middle of a reply: the server has the messages, and the stream of what goes on.
const talking = chat.sendMessage({ text: "Talk." });
while (!chat.lastMessage.parts.some((part) => part.text?.startsWith("I talk"))) await new Promise((done) => setTimeout(done, 20));
tell("begun", { text: chat.lastMessage.parts.at(-1).text });
const before = await (await fetch(`${url}mine`)).json();
const page = chatOf("mine", before.messages);
const reading = page.resumeStream();
while (!page.lastMessage.parts.some((part) => part.text?.startsWith("I talk"))) await new Promise((done) => setTimeout(done, 20));
tell("reloaded", { roles: before.messages.map((one) => one.role) });
await Promise.all([reading, talking]);
tell("whole", {
  parts: shape(page.lastMessage),
  same: JSON.stringify(chat.messages.map(shape)) === JSON.stringify(page.messages.map(shape)),
  ids: JSON.stringify(chat.messages.map((one) => one.id)) === JSON.stringify(page.messages.map((one) => one.id)),
});
await page.resumeStream();
tell("idle", { status: page.status, messages: page.messages.length });
await page.sendMessage({ text: "Thanks." });
tell("thanked", { parts: shape(page.lastMessage), checked });

// Without a chat: the reader of the package alone.
const stream = await transport().sendMessages({
  chatId: "other", trigger: "submit-message", messages: [{ id: "u", role: "user", parts: [{ type: "text", text: "Mail Dee." }] }],
});
let last;
for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
tell("read", { id: last.id, parts: shape(last) });

page.messages = page.messages.map((one, at) => at === 1 ? { ...one, parts: one.parts.map((part) => part.type === "text" ? { ...part, text: "Forged." } : part) } : one);
await page.sendMessage({ text: "And now?" });
