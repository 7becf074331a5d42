/** Lines or bars over days, by uPlot; a lazy chunk of its own. The same figures stand in a table beside it. */
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  name: string;
  /** A colour of the page's tokens, `--good`. */
  colour: string;
  values: number[];
  bars?: boolean;
}

interface ChartOptions {
  label: string;
  days: number[];
  series: Series[];
  show?: (value: number) => string;
}

const HEIGHT = 180;

export default function Chart({ label, days, series, show = String }: ChartOptions) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const drawn = JSON.stringify([days, series]);
  // `drawn` is what `days` and `series` say: they are made anew for every look at the page.
  useEffect(() => {
    const place = box.current;
    if (!place) return;
    const style = getComputedStyle(document.documentElement);
    const token = (name: string) => resolved(style.getPropertyValue(name));
    const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false } };
    const options: uPlot.Options = {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high, 0.0001) * 1.1] } },
      axes: [axis, { ...axis, size: 60, values: (_plot, ticks) => ticks.map(show) }],
      series: [
        {},
        ...series.map((one) => ({
          label: one.name,
          stroke: token(one.colour),
          width: 2,
          ...(one.bars ? { fill: token(one.colour), paths: uPlot.paths.bars?.({ size: [0.6, 40] }) as never } : {}),
          points: { show: !one.bars },
        })),
      ],
    };
    const plot = new uPlot(options, [days, ...series.map((one) => one.values)], place);
    const watch = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT }));
    watch.observe(place);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [drawn, theme]);
  return (
    <figure className="chart">
      <figcaption>
        {label}
        {series.map((one) => (
          <span key={one.name} className="legend">
            <span className="swatch" style={{ background: `var(${one.colour})` }} aria-hidden="true" /> {one.name}
          </span>
        ))}
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}

/** A colour as the canvas wants it: tokens are `light-dark()`, which only a style resolves. */
function resolved(colour: string): string {
  const probe = document.createElement("span");
  probe.style.color = colour;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Changes with the theme, so that the canvas is drawn anew. */
function useTheme(): number {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const changed = () => setChanges((before) => before + 1);
    const watch = new MutationObserver(changed);
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", changed);
    return () => {
      watch.disconnect();
      system.removeEventListener("change", changed);
    };
  }, []);
  return changes;
}
