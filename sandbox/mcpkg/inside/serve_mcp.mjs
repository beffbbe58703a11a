#!/usr/bin/env node
// Speaks MCP on stdio for one tool of a package: a command with its arguments as one JSON word, no shell.
// Runs inside the sandbox. It decides nothing: arguments and results are held to the contract outside.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MAX_ARGUMENT = 128 * 1024 - 1; // MAX_ARG_STRLEN of Linux, with its NUL
const GRACE_MS = 500;
const config = JSON.parse(readFileSync(process.argv[2], "utf8"));

class Failed extends Error {}

function runCommand(given) {
  const text = JSON.stringify(given);
  if (Buffer.byteLength(text) > MAX_ARGUMENT)
    throw new Failed("the arguments are longer than one word of a command may be (128 KiB)");
  const [program, ...rest] = config.local.argv;
  return new Promise((resolve, reject) => {
    const child = spawn(program, [...rest, text], {
      cwd: config.local.cwd, stdio: ["ignore", "pipe", "inherit"], detached: true, shell: false,
    });
    const kill = () => { try { process.kill(-child.pid, "SIGKILL"); } catch { /* it has ended */ } };
    const pieces = [];
    let size = 0;
    let why = "";
    const timer = setTimeout(() => {
      why = `the command took longer than ${config.timeout} s and was stopped`;
      kill();
    }, config.timeout * 1000);
    child.on("error", (error) => { clearTimeout(timer); reject(new Failed(`the command cannot be run: ${error.code}`)); });
    child.stdout.on("data", (piece) => {
      size += piece.length;
      if (size > config.max_result) { why = `the command wrote more than ${config.max_result} bytes`; kill(); return; }
      pieces.push(piece);
    });
    child.on("exit", () => setTimeout(kill, GRACE_MS).unref());
    child.on("close", (code) => {
      clearTimeout(timer);
      kill();
      if (why) reject(new Failed(why));
      else if (code !== 0) reject(new Failed(`the command ended with status ${code}`));
      else {
        try { resolve(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(pieces)))); }
        catch (error) { reject(new Failed(`what the command wrote is not JSON: ${error.message}`)); }
      }
    });
  });
}

async function call(params) {
  if (params.name !== config.tool.name) return { error: { code: -32602, message: "no such tool" } };
  try {
    const value = await runCommand(params.arguments ?? {});
    const structured = config.wrap ? { result: value } : value;
    if (structured === null || typeof structured !== "object" || Array.isArray(structured))
      throw new Failed("the tool answered with something other than an object");
    const content = [{ type: "text", text: JSON.stringify(value) }];
    return { result: { content, structuredContent: structured, isError: false } };
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    return { result: { content: [{ type: "text", text: error.message }], isError: true } };
  }
}

async function answer(method, params) {
  if (method === "initialize") {
    const version = VERSIONS.includes(params.protocolVersion) ? params.protocolVersion : VERSIONS[0];
    const info = { name: config.tool.name, version: config.version };
    return { result: { protocolVersion: version, capabilities: { tools: {} }, serverInfo: info } };
  }
  if (method === "tools/list") return { result: { tools: [config.tool] } };
  if (method === "tools/call") return call(params);
  return method === "ping" ? { result: {} } : { error: { code: -32601, message: "no such method" } };
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const request = JSON.parse(line);
  if (request.id === undefined || request.method === undefined) continue;
  const body = await answer(request.method, request.params ?? {});
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: request.id, ...body })}\n`);
}
