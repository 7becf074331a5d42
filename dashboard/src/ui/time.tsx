import { useEffect, useState } from "react";
import { serverTime } from "../live/clock";
import { ago } from "./format";

/** Seconds since the epoch by the server's clock, looked at again every so often. */
export function useNow(every = 15_000): number {
  const [now, setNow] = useState(() => serverTime() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(serverTime() / 1000), every);
    return () => window.clearInterval(timer);
  }, [every]);
  return now;
}

/** The value once it has been the same for so many milliseconds. */
export function useSettled<T>(value: T, after = 200): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), after);
    return () => window.clearTimeout(timer);
  }, [value, after]);
  return settled;
}

/** A moment as people say it, with the exact one for those who ask. */
export function Ago({ at }: { at: string }) {
  const now = useNow();
  const then = Date.parse(at);
  return (
    <time dateTime={at} title={new Date(then).toLocaleString()}>
      {ago(then / 1000, now)}
    </time>
  );
}
