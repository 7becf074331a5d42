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

export function Status({ status, reason }: { status: string; reason?: string | null }) {
  return (
    <span className={`status ${status}`}>
      <span aria-hidden="true">{SIGNS[status] ?? "?"}</span> {status}
      {reason ? ` (${reason})` : ""}
    </span>
  );
}
