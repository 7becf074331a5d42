import type { ReactNode } from "react";

/** A short word to the reader: of success, of something to look at, or of trouble. */
export function Notice({
  kind = "plain",
  children,
}: {
  kind?: "plain" | "good" | "wait" | "bad";
  children: ReactNode;
}) {
  return (
    <div className={`notice ${kind}`} role={kind === "bad" ? "alert" : "status"}>
      {children}
    </div>
  );
}
