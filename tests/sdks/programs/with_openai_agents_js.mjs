// Agents with `@openai/agents`: AGENT whole|stream MESSAGE MODEL [BASE KEY]
import { writeFileSync } from "node:fs";
import { Agent, OpenAIProvider, Runner, tool } from "@openai/agents";
import { z } from "zod";

const [kind, how, message, model, base, key] = process.argv.slice(2);
const write_file = tool({
  name: "write_file",
  description: "Write a file.",
  parameters: z.object({ path: z.string(), content: z.string() }),
  execute: async ({ path, content }) => {
    writeFileSync(path, content);
    return "written";
  },
});
const where = base ? { baseURL: `${base}/v1`, apiKey: key } : {};
const modelProvider = new OpenAIProvider({ useResponses: kind === "responses", ...where });
// The gateway's variables have tracing off as well
const runner = new Runner({ modelProvider, tracingDisabled: true });
const agent = new Agent({ name: "writer", model, tools: [write_file] });
const result = await runner.run(agent, message, { stream: how === "stream" });
if (how === "stream") await result.completed;
console.log(result.finalOutput);
