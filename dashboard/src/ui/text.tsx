/** Text of others, for people to read: nothing in it turns the text around it, or stays unseen.
 *
 * The same characters as in `windlass/visible.py` are written out in the same way: as JSON escapes them.
 */

const CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"; // all but tab and line feed
const TURNING = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";
const UNSEEN = "\\u180e\\u200b\\u2028\\u2029\\u2060-\\u2065\\u206a-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}";
const UNSAFE = new RegExp(`[${CONTROLS}${TURNING}${UNSEEN}]`, "gu");
const SHORT: Record<string, string> = { "\b": "\\b", "\f": "\\f", "\r": "\\r" };

/** The text with everything that a browser would obey, or not show, written out. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNSAFE, writtenOut);
}

/** The same for a name in the middle of a line: line breaks are written out, too. */
export function oneLine(text: string): string {
  return visible(text).replaceAll("\n", "\\n");
}

function writtenOut(character: string): string {
  const short = SHORT[character];
  if (short) return short;
  return [...Array(character.length).keys()]
    .map((place) => `\\u${character.charCodeAt(place).toString(16).padStart(4, "0")}`)
    .join("");
}

/** A name or a text of somebody else, set apart from the direction of the text around it. */
export function Text({ children, className }: { children: string | null | undefined; className?: string }) {
  return <bdi className={className}>{oneLine(children ?? "")}</bdi>;
}

/** The same with its lines as they are. */
export function Lines({ children, className }: { children: string; className?: string }) {
  return (
    <pre className={className} dir="auto">
      {visible(children)}
    </pre>
  );
}
