// Agents with Vercel's `ai`: AGENT whole|stream MESSAGE MODEL [BASE KEY]
import { writeFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [agent, how, prompt, name, base, key] = process.argv.slice(2);
const where = (path) => (base ? { baseURL: base + path, apiKey: key } : {});
const models = {
  chat: () => createOpenAI(where("/v1")).chat(name),
  responses: () => createOpenAI(where("/v1")).responses(name),
  // It accepts one of the two keys in the variables
  messages: () => createAnthropic({ apiKey: process.env.ANTHROPIC_API_KEY, ...where("/v1") })(name),
};
const write_file = tool({
  description: "Write a file.",
  inputSchema: z.object({ path: z.string(), content: z.string() }),
  execute: async ({ path, content }) => {
    writeFileSync(path, content);
    return "written";
  },
});
const asked = { model: models[agent](), prompt, tools: { write_file }, stopWhen: isStepCount(5) };
console.log(how === "stream" ? await streamText(asked).text : (await generateText(asked)).text);
