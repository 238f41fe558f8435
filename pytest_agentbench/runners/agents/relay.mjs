// Runs a program in a run's sandbox and gives it a way to its model, as relay.py does, which says how.
// Usage: node relay.mjs PORT SOCKET MARK PROGRAM [ARGUMENT ...]; with an empty MARK there is an empty line in its place,
// and with `streams` stdin and stdout pass through.

import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { connect, createServer } from "node:net";
import { constants } from "node:os";

const HELD_OPEN_MS = 1000;
const MOST_BYTES = 16 * 2 ** 20;
const STREAMS = "streams";
const PATIENCE_MS = 2000;

const [port, socket, mark, program, ...programArguments] = process.argv.slice(2);

function runWithStreams() {
  // In a group, so that signals reach the processes that it has started, too
  const child = spawn(program, programArguments, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const kill = (signal) => {
    try {
      process.kill(-child.pid, signal);
    } catch {
      // It has ended
    }
  };
  child.stdin.on("error", () => {});
  process.stdout.on("error", () => {});
  process.stdin.pipe(child.stdin);
  process.stdin.on("end", () => {
    setTimeout(kill, PATIENCE_MS, "SIGTERM");
    setTimeout(kill, 2 * PATIENCE_MS, "SIGKILL");
  });
  child.stdout.pipe(process.stdout);
  child.on("error", (error) => {
    console.error(`relay: ${program}: ${error.message}`);
    process.exit(127);
  });
  child.on("exit", (code, signal) => {
    const status = signal === null ? code : 128 + constants.signals[signal];
    const finish = () => {
      console.error(`relay: ${program} ended with status ${status}`);
      process.exit(status);
    };
    setTimeout(finish, HELD_OPEN_MS);
    child.on("close", finish);
  });
}

function run() {
  if (mark === STREAMS) {
    runWithStreams();
    return;
  }
  const child = spawn(program, programArguments, { stdio: ["ignore", "pipe", "inherit"] });
  let written = [];
  let size = 0;
  let exitCode = 127;
  let timer;

  const finish = () => {
    clearTimeout(timer);
    child.stdout?.removeAllListeners();
    child.removeAllListeners();
    const kept = Buffer.concat(written).subarray(-MOST_BYTES);
    process.stdout.write(Buffer.concat([Buffer.from(mark === "" ? "\n" : `\n${mark}\n`), kept]), () => process.exit(exitCode));
  };

  child.stdout?.on("data", (piece) => {
    written.push(piece);
    size += piece.length;
    if (size > 2 * MOST_BYTES) {
      written = [Buffer.concat(written).subarray(-MOST_BYTES)];
      size = MOST_BYTES;
    }
  });
  child.on("error", (error) => {
    console.error(`relay: ${program}: ${error.message}`);
    finish();
  });
  child.on("exit", (code, signal) => {
    exitCode = signal === null ? code : 128 + constants.signals[signal];
    timer = setTimeout(finish, HELD_OPEN_MS);
  });
  child.on("close", finish);
}

mkdirSync(process.env.HOME, { recursive: true });
if (port === "0") {
  run();
} else {
  const way = createServer((inner) => {
    const outer = connect(socket);
    inner.pipe(outer).pipe(inner);
    inner.on("error", () => outer.destroy());
    outer.on("error", () => inner.destroy());
  });
  way.listen(Number(port), "127.0.0.1", run);
}
