import { useEffect, useRef, useState } from "react";
import type { StepList } from "../api/client";
import { clockTime } from "./words";

interface ScrubberProps {
  /** The execution as the page shows it, and the number of its last event. */
  list: StepList;
  last: number;
  at: number | null;
  go: (at: number | null) => void;
}

const PAUSE = 120; // milliseconds without a move before the moment is asked for

/** Moves the whole page to any moment of the past. */
export function Scrubber({ list, last, at, go }: ScrubberProps) {
  const [place, setPlace] = useState(at ?? last);
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => setPlace(at ?? last), [at, last]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const move = (wanted: number) => {
    setPlace(wanted);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => go(wanted >= last ? null : wanted), PAUSE);
  };
  return (
    <div className={`scrubber${at === null ? "" : " is-past"}`}>
      <label>
        <span className="unseen">Moment of the execution</span>
        <input
          type="range"
          min={1}
          max={Math.max(1, last)}
          value={Math.min(place, last)}
          aria-valuetext={at === null ? "now" : clockTime(list.at)}
          onChange={(event) => move(Number(event.target.value))}
        />
      </label>
      {at === null ? (
        <span className="soft">{list.finished === null ? "now" : `ended ${clockTime(list.finished)}`}</span>
      ) : (
        <>
          <strong role="status">
            {list.seq === at
              ? `You are looking at ${clockTime(list.at)} (event ${list.seq} of ${last})`
              : "Going there …"}
          </strong>
          <button type="button" className="primary" onClick={() => go(null)}>
            Back to now
          </button>
        </>
      )}
    </div>
  );
}
