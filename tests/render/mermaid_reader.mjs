// Reads Mermaid texts with the real package: a JSON string a line comes in, what it holds a line goes out.
// The argument is the folder `node_modules` that holds `mermaid` and `jsdom`.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const modules = process.argv[2];
const require = createRequire(join(modules, "here.js"));
const { JSDOM } = require("jsdom");
const { window } = new JSDOM("");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import(pathToFileURL(join(modules, "mermaid", "dist", "mermaid.core.mjs")).href);
mermaid.initialize({ startOnLoad: false, securityLevel: "strict", maxTextSize: 1e8, maxEdges: 1e6 });

for await (const line of createInterface({ input: process.stdin })) {
  let told;
  try {
    const text = JSON.parse(line);
    const { diagramType } = await mermaid.parse(text);
    const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
    const edges = db.getEdges();
    told = {
      type: diagramType,
      nodes: Object.fromEntries([...db.getVertices().values()].map((node) => [node.id, node.text ?? ""])),
      edges: edges.map((edge) => [edge.start, edge.end, edge.text ?? ""]),
      groups: db.getSubGraphs().map((group) => [group.id, group.title]),
      links: [...db.getVertices().values()].filter((node) => node.link || node.haveCallback).length,
    };
  } catch (error) {
    told = { fault: String(error && error.message ? error.message : error) };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
