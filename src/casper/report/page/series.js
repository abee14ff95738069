// One sensor's readings over time: measured, filled with its intervals, flagged.

const series = { chosen: 0, range: null, parts: null };
const MOST_MARKERS = 1500;
const MOST_STRIPS = 400;
const MOST_STEPS_AT_FIRST = 120;

function startSeries() {
  const shown = page.data.series.sensors;
  if (!shown.length) return;
  series.chosen = mostTelling(shown);
  fillSelect(byId("series-sensor"), shown.map(({ sensor }, place) => [place, sensorName(sensor)]), series.chosen);
  byId("series-sensor").addEventListener("change", (event) => showSensor(Number(event.target.value)));
  const moves = {
    "gap-before": () => goToGap(-1),
    "gap-after": () => goToGap(1),
    earlier: () => move(-0.5),
    later: () => move(0.5),
    "zoom-in": () => zoom(0.5),
    "zoom-out": () => zoom(2),
    whole: () => show(wholePeriod()),
  };
  for (const [id, act] of Object.entries(moves)) byId(id).addEventListener("click", act);
  showSensor(series.chosen, { draw: false });
}

// Many holes, but not only holes.
function mostTelling(shown) {
  const worth = ({ holes, values }) => {
    const share = holes.reduce((sum, [, length]) => sum + length, 0) / values.length;
    return share * (1 - share) * Math.min(holes.length, 8);
  };
  return shown.reduce((best, one, place) => (worth(one) > worth(shown[best]) ? place : best), 0);
}

function showSensor(place, { draw = true } = {}) {
  series.chosen = place;
  series.parts = seriesParts(page.data.series.sensors[place]);
  const gap = gapToBeginWith(series.parts.gaps);
  series.range = gap ? aroundGap(gap) : wholePeriod();
  if (draw) drawSeries();
}

// The longest one that still lets single readings be seen beside it.
function gapToBeginWith(gaps) {
  const readable = gaps.filter(([, length]) => length <= MOST_STEPS_AT_FIRST);
  return (readable.length ? readable : gaps).reduce((best, gap) => (gap[1] > (best?.[1] ?? 0) ? gap : best), null);
}

// The chosen sensor's numbers as the chart wants them; steps are counted from the first one shown.
function seriesParts(one) {
  const { first, shares } = page.data.series;
  const factor = 10 ** -one.decimals;
  const steps = one.values.length;
  const values = one.values.map((value) => value * factor);
  const hole = new Uint8Array(steps);
  for (const [start, length] of one.holes) hole.fill(1, start, start + length);
  const bands = shares.map((share) => ({
    share, lower: spread(one.lower[share], hole, values, factor), upper: spread(one.upper[share], hole, values, factor),
  }));
  const flagged = new Uint8Array(steps);
  for (const [start, length] of one.flagged) flagged.fill(1, start, start + length);
  return { sensor: one.sensor, first, steps, values, hole, gaps: one.holes, bands, flagged, flaggedRuns: one.flagged };
}

function spread(packed, hole, values, factor) {
  let next = 0;
  return values.map((value, step) => (hole[step] ? packed[next++] * factor : value));
}

function wholePeriod() {
  return [0, series.parts.steps - 1];
}

function aroundGap([start, length]) {
  const room = Math.max(length, 36);
  return within([start - room, start + length - 1 + room]);
}

function within([from, to]) {
  const last = series.parts.steps - 1;
  const width = Math.min(Math.max(to - from, 6), last);
  const start = Math.min(Math.max(from, 0), last - width);
  return [start, start + width];
}

function show(range) {
  series.range = within(range);
  drawSeries();
}

function move(share) {
  const [from, to] = series.range;
  show([from + share * (to - from), to + share * (to - from)]);
}

function zoom(factor) {
  const [from, to] = series.range;
  const middle = (from + to) / 2;
  const half = ((to - from) / 2) * factor;
  show([middle - half, middle + half]);
}

function goToGap(direction) {
  const middle = (series.range[0] + series.range[1]) / 2;
  const beyond = series.parts.gaps.filter(([start, length]) => direction * (start + (length - 1) / 2 - middle) > 0.6);
  if (beyond.length) show(aroundGap(direction > 0 ? beyond[0] : beyond[beyond.length - 1]));
}

// Only what is in view is handed to the chart: long series stay quick.
function drawSeries() {
  const parts = series.parts;
  if (!parts) return undefined;
  const time = (step) => timeOf(parts.first + step);
  const first = Math.max(Math.floor(series.range[0]) - 1, 0);
  const last = Math.min(Math.ceil(series.range[1]) + 1, parts.steps - 1);
  const steps = Array.from({ length: last - first + 1 }, (_, place) => first + place);
  const gaps = parts.gaps.filter(([start, length]) => start <= last && start + length > first);
  const view = { ...parts, time, first, last, steps, gaps };
  const x = steps.map(time);
  const line = (chosen, fill, more) => ({
    type: "scatter", mode: "lines", x, y: steps.map((step) => (parts.hole[step] === chosen ? parts.values[step] : null)),
    line: { color: fill, width: 1.7 }, hoverinfo: "skip", ...more,
  });
  const traces = [
    ...parts.bands.map((band) => bandTrace(view, band)).reverse(),
    { ...bridges(view), type: "scatter", mode: "lines", hoverinfo: "skip",
      line: { color: seeThrough(colour("orange"), 0.55), width: 1.2 } },
    line(0, colour("blue")),
    { ...lonely(view), type: "scatter", mode: "markers", hoverinfo: "skip", marker: { size: 4, color: colour("blue") } },
    line(1, colour("orange"), { mode: steps.length <= MOST_MARKERS ? "lines+markers" : "lines", marker: { size: 3.6 } }),
    // One line for the pointer: two would tell the last reading beside a filled value as if it were of the same time.
    { type: "scatter", mode: "lines", x, y: steps.map((step) => parts.values[step]), line: { width: 0 },
      customdata: steps.map((step) => valueWords(parts, step)), hovertemplate: "%{customdata}<extra></extra>" },
  ];
  tellSeries(parts);
  return put("series-chart", traces, {
    height: page.printing ? 260 : narrow() ? 300 : 380,
    hovermode: "x",
    dragmode: hasMouse() ? "zoom" : false,
    shapes: flaggedStrips(view),
    xaxis: axis({ type: "date", range: series.range.map(time), fixedrange: !hasMouse(), hoverformat: "%Y-%m-%d %H:%M" }),
    yaxis: axis({ range: heightOf(parts), title: { text: plain(page.data.unit), font: { size: 12.5 }, standoff: 8 } }),
  }).then(listenToZoom);
}

function listenToZoom(chart) {
  if (series.listening) return;
  series.listening = true;
  const parsed = (time) => (typeof time === "number" ? time : Date.parse(String(time).replace(" ", "T").slice(0, 23) + "Z"));
  chart.on("plotly_relayout", (change) => {
    if (change["xaxis.range[0]"] === undefined) return;
    const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    show(range.map((time) => stepOf(parsed(time)) - series.parts.first));
  });
  // Plotly takes one tap of a finger for two clicks.
  chart.on("plotly_doubleclick", () => { if (hasMouse()) show(wholePeriod()); });
}

// A closed shape for every gap, so that bands do not run across what was measured.
function bandTrace({ gaps, first, last, time }, { lower, upper }) {
  const shape = { x: [], y: [] };
  const add = (step, value) => { shape.x.push(step === null ? null : time(step)); shape.y.push(value); };
  for (const [start, length] of gaps) {
    const from = Math.max(start - 1, first);
    const to = Math.min(start + length, last);
    for (let step = from; step <= to; step += 1) add(step, upper[step]);
    for (let step = to; step >= from; step -= 1) add(step, lower[step]);
    add(null, null);
  }
  return { type: "scatter", mode: "lines", ...shape, fill: "toself", fillcolor: colour("band"), line: { width: 0 }, hoverinfo: "skip" };
}

// From the readings beside a gap to the first and last value in it.
function bridges({ gaps, values, time, hole }) {
  const shape = { x: [], y: [] };
  const join = (a, b) => { shape.x.push(time(a), time(b), null); shape.y.push(values[a], values[b], null); };
  for (const [start, length] of gaps) {
    if (start > 0) join(start - 1, start);
    if (start + length < hole.length) join(start + length - 1, start + length);
  }
  return shape;
}

// Readings between two holes have no line to be seen by.
function lonely({ steps, values, hole, time }) {
  const alone = steps.filter((step) => !hole[step] && (hole[step - 1] ?? 1) && (hole[step + 1] ?? 1));
  return { x: alone.map(time), y: alone.map((step) => values[step]) };
}

// A strip along the time axis below flagged values.
function flaggedStrips({ flaggedRuns, first, last, time }) {
  const seen = flaggedRuns.filter(([start, length]) => start <= last && start + length > first).slice(0, MOST_STRIPS);
  return seen.map(([start, length]) => ({
    type: "rect", xref: "x", yref: "paper", x0: time(start - 0.5), x1: time(start + length - 0.5), y0: 0, y1: 0.022,
    fillcolor: colour("flag"), line: { width: 0 },
  }));
}

function valueWords(parts, step) {
  if (!parts.hole[step]) return `measured ${number(parts.values[step])}`;
  const band = parts.bands[parts.bands.length - 1];
  const ends = band ? ` (${percent(band.share)}: ${number(band.lower[step])} to ${number(band.upper[step])})` : "";
  return `filled ${number(parts.values[step])}${ends}${parts.flagged[step] ? ", flagged" : ""}`;
}

// The chart is as high as what it shows, not as the whole period.
function heightOf(parts) {
  const widest = parts.bands[parts.bands.length - 1];
  const [from, to] = [Math.floor(series.range[0]), Math.ceil(series.range[1])];
  let low = Infinity;
  let high = -Infinity;
  for (let step = from; step <= to; step += 1) {
    low = Math.min(low, widest ? widest.lower[step] : parts.values[step]);
    high = Math.max(high, widest ? widest.upper[step] : parts.values[step]);
  }
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  return [low - room, high + room];
}

function tellSeries(parts) {
  const [from, to] = series.range;
  const count = parts.gaps.length;
  const seen = parts.gaps.filter(([start, length]) => start <= to && start + length - 1 >= from).length;
  const middle = (from + to) / 2;
  byId("gap-before").disabled = !parts.gaps.some(([start, length]) => start + (length - 1) / 2 < middle - 0.6);
  byId("gap-after").disabled = !parts.gaps.some(([start, length]) => start + (length - 1) / 2 > middle + 0.6);
  byId("series-note").textContent =
    `${sensorName(parts.sensor)}: ${seen} of its ${count} gaps are in view` +
    (hasMouse() && !page.printing ? "; drag over a part to zoom in, double-click for the whole period." : ".") + (page.data.clock.zone ? `${page.data.clock.zone}.` : "");
  byId("series-chart").setAttribute("aria-label", `Measured and filled values of ${sensorName(parts.sensor)}, ` +
    `${written(timeOf(parts.first + Math.ceil(from)))} to ${written(timeOf(parts.first + Math.floor(to)))}`);
}
