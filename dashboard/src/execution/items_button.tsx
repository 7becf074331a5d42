import type { StepRow } from "../api/client";

/** Opens and closes the items of a foreach. */
export function ItemsButton({
  step,
  isOpen,
  toggle,
}: {
  step: StepRow;
  isOpen: boolean;
  toggle: (step: string) => void;
}) {
  return (
    <button
      type="button"
      className="quiet opener"
      aria-expanded={isOpen}
      aria-label={`${isOpen ? "Hide" : "Show"} the items of ${step.id}`}
      onClick={(event) => {
        event.stopPropagation();
        toggle(step.id);
      }}
    >
      {isOpen ? "▾" : "▸"}
    </button>
  );
}
