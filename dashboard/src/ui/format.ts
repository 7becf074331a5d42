/** Times, money and counts as people read them. */

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds > 0 && seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

export function ago(then: number, now: number): string {
  const seconds = Math.max(0, now - then);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(then * 1000).toLocaleString();
}

/** 100 is said of what is done alone. */
export function percent(done: number): string {
  return `${done < 100 ? Math.min(Math.round(done), 99) : 100} %`;
}

export function money(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return "unknown";
  return usd > 0 && usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** In the units of limits: 1 MB is 1024 kB. */
export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  const power = Math.min(3, Math.floor(Math.log2(bytes) / 10));
  const number = bytes / 1024 ** power;
  return `${number < 10 ? number.toFixed(1) : Math.round(number)} ${["", "kB", "MB", "GB"][power]}`;
}
