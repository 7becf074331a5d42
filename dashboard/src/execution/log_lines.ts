/** Lines of a step's log, made from the pieces in which its output came. */

export interface LogLine {
  text: string;
  stream: string;
  attempt: number;
}

interface Piece {
  stream: string;
  attempt: number;
  text: string;
}

const MOST_LINES = 100_000; // a page that is left open does not grow without end

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;

/** Takes out what would colour a terminal or move its cursor; of a line that was written over, the last writing. */
export function plain(line: string): string {
  const text = line.includes("\u001b") ? line.replace(ANSI, "") : line;
  const end = text.endsWith("\r") ? text.slice(0, -1) : text;
  return end.includes("\r") ? end.slice(end.lastIndexOf("\r") + 1) : end;
}

/** Adds pieces to lines; the last line of each stream goes on. `left` lines at the beginning are forgotten. */
export class LogLines {
  readonly lines: LogLine[] = [];
  left = 0;
  #open = new Map<string, LogLine>();

  add({ stream, attempt, text }: Piece): void {
    const parts = text.split("\n");
    const key = `${stream} ${attempt}`;
    parts.forEach((part, place) => {
      const open = this.#open.get(key);
      if (open) open.text += part;
      else if (part || place < parts.length - 1) {
        const line = { text: part, stream, attempt };
        this.lines.push(line);
        this.#open.set(key, line);
      }
      if (place < parts.length - 1) this.#open.delete(key);
    });
    const over = this.lines.length - MOST_LINES;
    if (over > MOST_LINES / 10) {
      this.lines.splice(0, over);
      this.left += over;
    }
  }
}
