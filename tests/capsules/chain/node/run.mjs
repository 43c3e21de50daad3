// Adds a line to a text and hands it to `native`; what comes back is the answer.
import { copyFile, readFile, rename, writeFile } from "node:fs/promises";

const { AOD_INPUT, AOD_OUTPUT, AOD_URL } = process.env;
const { text } = JSON.parse(await readFile(AOD_INPUT, "utf8"));
const lines = await readFile(`/io/input/${text}`, "utf8");
await writeFile(`/io/handoff/outgoing/${text}`, `${lines}node\n`);

const reply = await fetch(`${AOD_URL}/handoff`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ target: "native", args: { text } }),
});
const answer = await reply.json();
if (!answer.success) throw new Error(`native failed: ${JSON.stringify(answer)}`);

const { text: made, makers } = answer.output;
await copyFile(`/io/handoff/incoming/${made}`, `/io/output/${made}`);
await writeFile("/io/output.new", JSON.stringify({ text: made, makers: [...makers, "node"] }));
await rename("/io/output.new", AOD_OUTPUT);
