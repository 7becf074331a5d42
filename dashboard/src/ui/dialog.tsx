import { type ReactNode, useEffect, useId, useRef } from "react";

/** A dialog over the page.
 *
 * It is the browser's own: focus stays in it and comes back, Escape closes it, and it needs no style of its own in the
 * page, which the page's policy would refuse.
 */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ReactNode }) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const shown = element.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault(); // it is shown for as long as it is rendered
        close();
      }}
    >
      <header>
        <h2 id={heading}>{title}</h2>
        <button type="button" className="quiet" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}
