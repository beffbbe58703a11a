// The clients of the TypeScript SDK, 1.x and 2.x, doing everything that a gateway must carry; prints what came back.
//
// Usage: node ts_client.mjs MODULES v1|v2 legacy|modern all|reconnect URL
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, line, era, what, url] = process.argv.slice(2);
const require = createRequire(join(modules, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const info = { name: `ts-${line}`, version: "1" };
const capabilities = { elicitation: { form: {} }, sampling: {} };
const answer = async () => ({ action: "accept", content: { username: "ada", email: "ada@example.org" } });
const changed = {};
const heard = new Promise((resolve) => (changed.resolve = resolve));

let client, call, transport;
if (line === "v1") {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const types = await load("@modelcontextprotocol/sdk/types.js");
  client = new Client(info, { capabilities });
  client.setRequestHandler(types.ElicitRequestSchema, answer);
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, changed.resolve);
  transport = new StreamableHTTPClientTransport(new URL(url));
  call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
} else {
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const listChanged = { tools: { autoRefresh: false, onChanged: changed.resolve } };
  client = new Client(info, { capabilities, versionNegotiation: { mode }, listChanged });
  client.setRequestHandler("elicitation/create", answer);
  transport = new StreamableHTTPClientTransport(new URL(url));
  call = (name, args, options) => client.callTool({ name, arguments: args }, options);
}
const text = (result) => result.content?.[0]?.text ?? JSON.stringify(result);
const found = {};
await client.connect(transport);
if (what === "reconnect") {
  found.resumed = text(await call("test_reconnection", {}));
} else {
  found.tools = (await client.listTools()).tools.map((tool) => tool.name);
  found.text = text(await call("test_simple_text", {}));
  found.header = text(await call("test_header", { region: "eu-1" }));
  found.progress = [];
  await call("test_tool_with_progress", {}, { onprogress: (step) => found.progress.push(step.progress) });
  const stop = new AbortController();
  setTimeout(() => stop.abort("enough"), 300);
  found.cancelled = await call("test_waits", {}, { signal: stop.signal }).then(text, () => "cancelled");
  found.resource = (await client.readResource({ uri: "test://static-text" })).contents[0].text;
  const given = { name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } };
  found.prompt = (await client.getPrompt(given)).messages[0].content.text;
  found.elicited = text(await call("test_elicitation", { message: "Who?" }));
  await call("test_trigger_tool_change", {});
  found.changed = await Promise.race([heard.then(() => true), new Promise((done) => setTimeout(done, 10000, false))]);
  await call("test_trigger_tool_change", {});
}
console.log(JSON.stringify(found));
await client.close();
process.exit(0);
