// Runs a program in a run's container and gives it a way to its model: connections to a port of the loopback are led
// to the run's socket. Usage: node launch.mjs PORT SOCKET PROGRAM [ARGUMENT ...]
//
// The program's stderr passes through as it comes. Its stdout follows in one piece, on lines of its own, so that no log
// line can lie within it. The exit code is the program's, 128 + n after signal n, and 127 where it cannot be started.

import { spawn } from "node:child_process";
import { connect, createServer } from "node:net";
import { constants } from "node:os";

const HELD_OPEN_MS = 1000; // how long what the program left behind may hold its stdout open

const [port, socket, program, ...programArguments] = process.argv.slice(2);

const way = createServer((inner) => {
  const outer = connect(socket);
  inner.pipe(outer).pipe(inner);
  inner.on("error", () => outer.destroy());
  outer.on("error", () => inner.destroy());
});

way.listen(Number(port), "127.0.0.1", () => {
  const child = spawn(program, programArguments, { stdio: ["ignore", "pipe", "inherit"] });
  const written = [];
  let exitCode = 127;
  let timer;

  const finish = () => {
    clearTimeout(timer);
    child.stdout.removeAllListeners();
    child.removeAllListeners();
    process.stdout.write(Buffer.concat([Buffer.from("\n"), ...written]), () => process.exit(exitCode));
  };

  child.stdout.on("data", (piece) => written.push(piece));
  child.on("error", (error) => console.error(`launch: ${error.message}`));
  child.on("exit", (code, signal) => {
    exitCode = signal === null ? code : 128 + constants.signals[signal];
    timer = setTimeout(finish, HELD_OPEN_MS);
  });
  child.on("close", finish);
});
