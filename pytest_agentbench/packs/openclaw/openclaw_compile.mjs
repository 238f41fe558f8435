// Runs in the image while that is built. Usage: node openclaw_compile.mjs INSTALLATION
//
// Has OpenClaw take a turn, so that Node keeps the compiled code of what a turn loads, and moves that below the
// installation. Node looks for it in a folder of the user's own, below TMPDIR: the `openclaw` that is written here links
// that one to what was kept, and then is OpenClaw.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join, relative } from "node:path";

const installation = process.argv[2];
const program = join(installation, "node_modules/.bin/openclaw");
const kept = join(installation, "compiled");

const folder = mkdtempSync("/tmp/compile-");
const model = createServer((_, reply) => reply.writeHead(400).end()); // a turn that fails has loaded all the same

model.listen(0, "127.0.0.1", async () => {
  const workspace = join(folder, "workspace");
  mkdirSync(workspace);
  const api = { baseUrl: `http://127.0.0.1:${model.address().port}/v1`, apiKey: "none", api: "openai-completions" };
  const providers = { none: { ...api, models: [{ id: "none", name: "none" }] } };
  const defaults = { workspace, skipBootstrap: true, model: { primary: "none/none" } };
  const config = { agents: { defaults, list: [{ id: "none" }] }, models: { providers } };
  writeFileSync(join(folder, "openclaw.json"), JSON.stringify(config));
  await openclaw("config", "validate", "--json");
  await openclaw("agent", "--local", "--agent", "none", "--session-id", "none", "--message", "none");
  const compiled = join(folder, "node-compile-cache"); // there where this version of OpenClaw has Node keep it
  if (existsSync(compiled)) keep(compiled);
  rmSync(folder, { recursive: true });
  model.close();
});

function openclaw(...words) {
  const own = { HOME: folder, TMPDIR: folder, OPENCLAW_STATE_DIR: folder };
  const env = { ...process.env, ...own, OPENCLAW_CONFIG_PATH: join(folder, "openclaw.json") };
  return new Promise((resolve, reject) =>
    spawn(program, words, { env, stdio: "ignore" }).on("error", reject).on("exit", resolve),
  );
}

function keep(compiled) {
  renameSync(compiled, kept);
  const entries = readdirSync(kept, { recursive: true, withFileTypes: true });
  for (const each of entries) chmodSync(join(each.parentPath, each.name), each.isDirectory() ? 0o755 : 0o644);
  const links = entries.filter((each) => each.name.endsWith(`-${process.getuid()}`)).map(link);
  const lines = ["#!/bin/sh", "compiled=${TMPDIR:-/tmp}/node-compile-cache", ...links, `exec ${program} "$@"`, ""];
  mkdirSync(join(installation, "bin"));
  writeFileSync(join(installation, "bin/openclaw"), lines.join("\n"), { mode: 0o755 });
}

function link({ parentPath, name }) {
  const own = `"$compiled/${relative(kept, parentPath)}"`;
  const user = name.replace(/\d+$/, "$(id -u)");
  return `[ -e ${own} ] || { mkdir -p ${own} && ln -s ${join(parentPath, name)} ${own}/${user}; } 2>/dev/null`;
}
