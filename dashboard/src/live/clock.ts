/** The time by the server's clock, as all moments on the pages are: the browser's clock can be another one. */

const NEAR = 2_000; // milliseconds: a header has whole seconds, and an answer takes its time

let ahead = 0;

/** Takes the `Date` of an answer, if it has one. */
export function noteTime(date: string | null): void {
  const found = Date.parse(date ?? "") - Date.now();
  if (Math.abs(found - ahead) > NEAR) ahead = found;
}

/** A moment of the browser's clock, now if none is given, by the server's; in milliseconds. */
export function serverTime(browsers = Date.now()): number {
  return browsers + ahead;
}
