import { Text } from "./text";

/** What to do about an error. */
export function Advice({ lines }: { lines: readonly string[] }) {
  if (lines.length === 0) return null;
  return (
    <ul>
      {lines.map((line) => (
        <li key={line}>
          <Text>{line}</Text>
        </li>
      ))}
    </ul>
  );
}
