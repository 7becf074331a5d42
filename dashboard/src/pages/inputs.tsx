/** Fields for the inputs of a plan: each has the type of its default, and is its default while nothing is given. */
import type { CheckedPlan } from "../api/client";
import { Text } from "../ui/text";

type Input = CheckedPlan["inputs"][number];

/** The values of what was typed, and what is wrong with the rest, by name. What is not typed keeps its default. */
export function inputValues(
  inputs: Input[],
  texts: Record<string, string>,
): [Record<string, unknown>, Map<string, string>] {
  const values: Record<string, unknown> = {};
  const wrong = new Map<string, string>();
  for (const input of inputs) {
    const text = texts[input.name];
    if (text === undefined) continue;
    try {
      values[input.name] = read(input.type, text);
    } catch (error) {
      wrong.set(input.name, (error as Error).message);
    }
  }
  return [values, wrong];
}

function read(type: Input["type"], text: string): unknown {
  switch (type) {
    case "text":
      return text;
    case "yes or no":
      return text === "true";
    case "whole number":
      if (!/^-?\d+$/.test(text.trim())) throw new Error("Write a whole number, like 3.");
      return Number(text);
    case "number":
      if (text.trim() === "" || !Number.isFinite(Number(text))) throw new Error("Write a number, like 0.5.");
      return Number(text);
    case "list":
      return json(text, Array.isArray, 'Write a list as JSON, like ["a", "b"].');
    case "mapping":
      return json(text, (found) => typeof found === "object" && !Array.isArray(found), 'Write JSON, like {"a": 1}.');
    default:
      return text === "" ? null : guessed(text);
  }
}

function json(text: string, fits: (found: unknown) => boolean, message: string): unknown {
  const found = guessed(text);
  if (found === null || !fits(found)) throw new Error(message);
  return found;
}

/** What is JSON is that; other text is text. */
function guessed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

interface Fields {
  inputs: Input[];
  texts: Record<string, string>;
  wrong: Map<string, string>;
  /** Values of the last execution, to choose again. */
  last?: Record<string, unknown>;
  change: (name: string, text: string) => void;
}

export function InputFields({ inputs, texts, wrong, last, change }: Fields) {
  if (inputs.length === 0) return <p className="soft">This plan has no inputs.</p>;
  return (
    <fieldset className="inputs">
      <legend>Inputs</legend>
      {inputs.map((input) => {
        const before = last && input.name in last ? shown(last[input.name]) : undefined;
        const again = before !== undefined && before !== (texts[input.name] ?? shown(input.default));
        return (
          <div className="field" key={input.name}>
            <label htmlFor={`input-${input.name}`}>
              <Text>{input.name}</Text> <span className="soft">({input.type})</span>
            </label>
            <Field input={input} text={texts[input.name]} change={(text) => change(input.name, text)} />
            {again && (
              <button type="button" className="link" onClick={() => change(input.name, before)}>
                Last time: <Text>{before.slice(0, 80)}</Text>
              </button>
            )}
            {wrong.has(input.name) && <span className="bad">{wrong.get(input.name)}</span>}
          </div>
        );
      })}
    </fieldset>
  );
}

function Field({ input, text, change }: { input: Input; text: string | undefined; change: (text: string) => void }) {
  const id = `input-${input.name}`;
  const value = text ?? shown(input.default);
  if (input.type === "yes or no") {
    return (
      <input
        id={id}
        type="checkbox"
        checked={value === "true"}
        onChange={(event) => change(String(event.target.checked))}
      />
    );
  }
  if (input.type === "list" || input.type === "mapping" || value.includes("\n")) {
    return (
      <textarea id={id} className="code" rows={3} value={value} onChange={(event) => change(event.target.value)} />
    );
  }
  return <input id={id} value={value} onChange={(event) => change(event.target.value)} />;
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
