// Serve MCP on stdin and stdout by forwarding each message to an address: mcp_relay.py in Node, for images without
// Python. Usage: node mcp_relay.mjs URL
import http from "node:http";
import readline from "node:readline";

const LAST_MILLISECONDS = 1000; // time for answers after stdin has ended
const [url] = process.argv.slice(2);
const write = (text) => process.stdout.write(text.trim() + "\n");

// Not fetch: it gives up if the head of a response takes five minutes
function forward(line) {
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(line),
    accept: "application/json, text/event-stream",
  };
  const fail = (error) => {
    const { id } = JSON.parse(line);
    const problem = { code: -32603, message: `the server cannot be reached: ${error.message}` };
    if (id != null) write(JSON.stringify({ jsonrpc: "2.0", id, error: problem }));
  };
  const request = http.request(url, { method: "POST", headers }, async (response) => {
    response.setEncoding("utf-8");
    try {
      if (response.statusCode === 202) {
        response.resume();
      } else if ((response.headers["content-type"] ?? "").startsWith("text/event-stream")) {
        for await (const event of readline.createInterface({ input: response })) {
          if (event.startsWith("data:")) write(event.slice(5));
        }
      } else {
        let body = "";
        for await (const piece of response) body += piece;
        write(body);
      }
    } catch (error) {
      fail(error);
    }
  });
  request.on("error", fail);
  request.end(line);
}

const input = readline.createInterface({ input: process.stdin });
input.on("line", (line) => {
  if (line.trim()) forward(line);
});
input.on("close", () => setTimeout(() => process.exit(0), LAST_MILLISECONDS).unref());
