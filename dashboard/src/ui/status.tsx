/** The word for a state, with a sign for those who do not see its colour. */

const SIGNS: Record<string, string> = {
  pending: "○",
  running: "●",
  waiting: "◔",
  paused: "‖",
  completed: "✓",
  partial: "◐",
  failed: "✗",
  cancelled: "⊘",
  skipped: "–",
  damaged: "!",
};

/** With `short`, only the sign is seen; a screen reader reads the word. */
export function Status({ status, reason, short }: { status: string; reason?: string | null; short?: boolean }) {
  return (
    <span className={`status ${status}`} title={short ? status : undefined}>
      <span aria-hidden="true">{SIGNS[status] ?? "?"}</span>{" "}
      <span className={short ? "unseen" : undefined}>
        {status}
        {reason ? ` (${reason})` : ""}
      </span>
    </span>
  );
}
