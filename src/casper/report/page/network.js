// The sensors in the plane and the arrows between them. Everything is laid out in pixels of the present view.

const map = { sensor: -1, least: 0.1, shut: false, view: null };
const MOST_ARROWS = 250;
const MOST_DASHED = 150;
const MOST_DASHED_AT_FIRST = 40;
// From long after to long before, as in the page's lagClasses.
const LAG_COLOURS = {
  light: ["#7a3300", "#c05200", "#e69f00", "#7c858e", "#56a5dd", "#0072b2", "#08365e"],
  dark: ["#ffd9a8", "#f5a54a", "#c47a1e", "#8a97a4", "#2f7fb8", "#56b4e9", "#c3e6fb"],
};
const WIDTHS = [1.2, 2.2, 3.6, 5.4];
const WIDEST_SHARE = 0.4;
const MOST_NAMES = 80;
const MOST_ZOOM = 30;
const ROOM_FOR_A_NAME = 40; // pixels between two dots
const REACH = 12; // pixels between a click and the sensor it means

function lagClass(lag) {
  return page.data.network.lagClasses.findLastIndex(({ least }) => lag >= least);
}

function startNetwork() {
  const { network, sensors } = page.data;
  if (!network) return;
  const names = sensors.map((name, place) => [place, `causes of ${name}`]);
  fillSelect(byId("map-sensor"), names);
  map.least = usualLeast(network.arrows);
  byId("map-least").max = Math.max(5, Math.ceil(100 * Math.max(...network.arrows.map((arrow) => arrow[2]), 0)));
  byId("map-least").value = Math.round(100 * map.least);
  map.shut = network.shut.length > 0 && network.shut.length <= MOST_DASHED_AT_FIRST;
  byId("map-shut").checked = map.shut;
  byId("map-shut").disabled = !network.shut.length;
  if (!network.shut.length) byId("map-shut-words").textContent = "no neighbour is shut out";
  byId("map-sensor").addEventListener("change", (event) => chooseSensor(Number(event.target.value)));
  byId("map-least").addEventListener("input", (event) => { map.least = Number(event.target.value) / 100; drawNetwork(); });
  byId("map-shut").addEventListener("change", (event) => { map.shut = event.target.checked; drawNetwork(); });
  byId("map-in").addEventListener("click", () => zoomMap(0.6));
  byId("map-out").addEventListener("click", () => zoomMap(1 / 0.6));
}

// About two arrows for each sensor, and not more than can be told apart.
function usualLeast(arrows) {
  const shares = arrows.map((arrow) => arrow[2]).sort((a, b) => b - a);
  const wanted = Math.min(2 * page.data.sensors.length, 120, shares.length);
  return wanted ? Math.max(Math.floor(100 * shares[wanted - 1]) / 100, 0.01) : 0.01;
}

function chooseSensor(sensor) {
  map.sensor = sensor;
  byId("map-sensor").value = sensor;
  if (sensor >= 0) lookCloser(sensor);
  else if (map.view.fitted) map.view = null;
  drawNetwork();
}

// The chosen sensor and its causes fill the view where they would be too close together on the whole map. Elsewhere the
// map stays as it is, unless the reader had zoomed in.
function lookCloser(sensor) {
  const { arrows } = page.data.network;
  const { view } = map;
  const taking = [...new Set([sensor, ...arrows.filter(([, target]) => target === sensor).map(([source]) => source)])];
  if (crowded(taking)) fit(taking);
  else if (view.fitted) map.view = wholeView(view.width, view.height);
  else if (view.perPixel < view.whole) lookAt(sensor);
}

// taking: the chosen sensor, then its causes. A far cause needs the whole map; and what is apart needs no zoom.
function crowded(taking) {
  const { x, y } = page.data.network;
  const { view } = map;
  const apart = (a, b) => Math.hypot(x[a] - x[b], y[a] - y[b]) / view.whole;
  const causes = taking.slice(1);
  if (!causes.length) return false;
  const farthest = Math.max(...causes.map((cause) => apart(cause, taking[0])));
  const closest = Math.min(...causes.flatMap((cause, place) => taking.slice(0, place + 1).map((other) => apart(cause, other))));
  return many() || (farthest < Math.max(view.width, view.height) / 4 && closest < ROOM_FOR_A_NAME);
}

function fit(sensors) {
  const { x, y } = page.data.network;
  const { view } = map;
  const closer = wholeView(view.width, view.height, sensors.map((sensor) => x[sensor]), sensors.map((sensor) => y[sensor]));
  const perPixel = Math.min(Math.max(closer.perPixel, view.whole / MOST_ZOOM), view.whole);
  map.view = { ...closer, perPixel, whole: view.whole, fitted: true };
}

// From the whole map the way in leads to the chosen sensor, or to where most of them are: its middle may be empty.
function zoomMap(factor) {
  if (factor < 1 && map.view.perPixel === map.view.whole) lookAt(map.sensor >= 0 ? map.sensor : mostCentral());
  map.view.perPixel = Math.min(Math.max(map.view.perPixel * factor, map.view.whole / MOST_ZOOM), map.view.whole);
  if (map.view.perPixel === map.view.whole) map.view = null;
  drawNetwork();
}

function lookAt(sensor) {
  const { x, y } = page.data.network;
  map.view.x = x[sensor];
  map.view.y = y[sensor];
}

function mostCentral() {
  const { x, y } = page.data.network;
  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const [middleX, middleY] = [median(x), median(y)];
  const away = x.map((_, sensor) => Math.hypot(x[sensor] - middleX, y[sensor] - middleY));
  return away.indexOf(Math.min(...away));
}

function wholeView(width, height, x = page.data.network.x, y = page.data.network.y) {
  const [west, east, south, north] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
  const room = 46;
  const whole = Math.max((east - west) / Math.max(width - 2 * room, 50), (north - south) / Math.max(height - 2 * room, 50), 1e-6);
  return { x: (west + east) / 2, y: (south + north) / 2, perPixel: whole, whole, width, height };
}

// The strongest that touch the present view.
function shownArrows(inView) {
  const { arrows } = page.data.network;
  const chosen = arrows.filter(([, target, share]) => share >= map.least - 1e-9 && (map.sensor < 0 || target === map.sensor));
  const seen = chosen.filter(([source, target]) => map.sensor >= 0 || inView(source) || inView(target));
  return { drawn: seen.slice(0, MOST_ARROWS), count: chosen.length, seen: seen.length };
}

function drawNetwork() {
  const { network } = page.data;
  if (!network) return;
  const width = widthOf("map-chart");
  const height = page.printing ? 310 : narrow() ? Math.min(width * 1.05, 420) : Math.min(Math.max(width * 0.6, 360), 620);
  if (!map.view || map.view.width !== width) map.view = wholeView(width, height);
  const view = map.view;
  const pixel = (sensor) => [
    width / 2 + (network.x[sensor] - view.x) / view.perPixel,
    height / 2 - (network.y[sensor] - view.y) / view.perPixel,
  ];
  map.pixel = pixel;
  const inView = (sensor) => {
    const [x, y] = pixel(sensor);
    return x > 0 && y > 0 && x < width && y < height;
  };
  const { drawn, count, seen } = shownArrows(inView);
  const radius = many() ? 3 : network.x.length > 60 || narrow() ? 4.5 : 6;
  const dashed = map.shut ? network.shut.filter(([, target]) => map.sensor < 0 || target === map.sensor).slice(0, MOST_DASHED) : [];
  const curve = (source, target) => bent(pixel(source), pixel(target), radius);
  const traces = [
    dashedTrace(dashed, curve),
    ...arrowTraces(drawn, curve),
    ...hoverTraces(drawn, dashed, curve),
    ...sensorTraces(drawn, pixel, curve, { inView, radius, width, height }),
  ];
  tellNetwork(drawn, count, seen, dashed);
  const hidden = { visible: false, fixedrange: true };
  return put("map-chart", traces, {
    height,
    margin: { l: 0, r: 0, t: 0, b: 0 },
    hovermode: "closest",
    hoverdistance: 14,
    xaxis: { ...hidden, range: [0, width] },
    yaxis: { ...hidden, range: [height, 0] },
    shapes: network.map ? [scaleBar(view, height).shape] : [],
    annotations: network.map ? [scaleBar(view, height).label] : [],
  }).then(listenToMap);
}

// A click, or a tap, on a sensor chooses it, or all sensors again; a mouse moves the map, fingers scroll the page.
function listenToMap(chart) {
  if (map.listening) return;
  map.listening = true;
  let down = null;
  let last = null;
  const forget = () => { down = null; last = null; };
  chart.addEventListener("pointerdown", ({ clientX, clientY }) => { down = [clientX, clientY]; last = down; });
  window.addEventListener("pointercancel", forget);
  window.addEventListener("pointerup", ({ clientX, clientY }) => {
    if (down && Math.hypot(clientX - down[0], clientY - down[1]) < 4) clickMap(chart, clientX, clientY);
    forget();
  });
  window.addEventListener("pointermove", ({ clientX, clientY, pointerType }) => {
    if (!last || pointerType !== "mouse" || map.view.perPixel === map.view.whole) return;
    map.view.x -= (clientX - last[0]) * map.view.perPixel;
    map.view.y += (clientY - last[1]) * map.view.perPixel;
    last = [clientX, clientY];
    drawNetwork();
  });
}

function clickMap(chart, clientX, clientY) {
  const box = chart.getBoundingClientRect();
  const away = page.data.sensors.map((_, sensor) => {
    const [x, y] = map.pixel(sensor);
    return Math.hypot(clientX - box.x - x, clientY - box.y - y);
  });
  const nearest = away.indexOf(Math.min(...away));
  if (away[nearest] < REACH) chooseSensor(nearest === map.sensor ? -1 : nearest);
}

// From one dot to the other, bent to the right, so that there and back are two arrows; ends leave room for the dots.
function bent([x0, y0], [x1, y1], radius) {
  const length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
  const bow = page.data.network.map ? 0.13 * length : 0.2 * length;
  const control = [(x0 + x1) / 2 - dy * bow, (y0 + y1) / 2 + dx * bow];
  const at = (t) => [
    (1 - t) ** 2 * x0 + 2 * t * (1 - t) * control[0] + t ** 2 * x1,
    (1 - t) ** 2 * y0 + 2 * t * (1 - t) * control[1] + t ** 2 * y1,
  ];
  const from = Math.min((radius + 2) / length, 0.3);
  const to = 1 - Math.min((radius + 3) / length, 0.3);
  return Array.from({ length: 13 }, (_, step) => at(from + ((to - from) * step) / 12));
}

function widthClass(share) {
  return Math.min(Math.floor((share / WIDEST_SHARE) * WIDTHS.length), WIDTHS.length - 1);
}

function many() {
  return page.data.sensors.length > 120;
}

// Among many sensors, or on a small screen, arrows are finer.
function fine() {
  return many() || narrow();
}

function arrowWidth(wide) {
  return WIDTHS[wide] * (fine() ? 0.6 : 1);
}

function dashedTrace(pairs, curve) {
  const line = { x: [], y: [] };
  for (const [source, target] of pairs) {
    for (const [x, y] of curve(source, target)) { line.x.push(x); line.y.push(y); }
    line.x.push(null); line.y.push(null);
  }
  return { type: "scatter", mode: "lines", ...line, hoverinfo: "skip", line: { color: colour("grey"), width: 1.2, dash: "4px,4px" } };
}

// Lines of one colour and width are one trace; the heads are markers turned to where their line ends.
function arrowTraces(arrows, curve) {
  const groups = new Map();
  const heads = { x: [], y: [], size: [], angle: [], color: [] };
  for (const [source, target, share, lag] of [...arrows].reverse()) {
    const [kind, wide] = [lagClass(lag), widthClass(share)];
    const key = wide * LAG_COLOURS.light.length + kind;
    if (!groups.has(key)) groups.set(key, { x: [], y: [], kind, wide });
    const points = curve(source, target);
    const [tip, before] = [points[12], points[11]];
    const angle = Math.atan2(tip[1] - before[1], tip[0] - before[0]);
    const size = (fine() ? 5 : 7.5) + 2 * arrowWidth(wide);
    const neck = [tip[0] - 0.6 * size * Math.cos(angle), tip[1] - 0.6 * size * Math.sin(angle)];
    for (const [x, y] of [...points.slice(0, 12), neck]) { groups.get(key).x.push(x); groups.get(key).y.push(y); }
    groups.get(key).x.push(null);
    groups.get(key).y.push(null);
    heads.x.push(tip[0]);
    heads.y.push(tip[1]);
    heads.size.push(size);
    heads.angle.push((angle * 180) / Math.PI + 90);
    heads.color.push(lagColour(kind));
  }
  const lines = [...groups.keys()].sort((a, b) => a - b).map((key) => {
    const { x, y, kind, wide } = groups.get(key);
    return { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", line: { color: lagColour(kind), width: arrowWidth(wide) } };
  });
  const marker = { symbol: "arrow", size: heads.size, angle: heads.angle, angleref: "up", color: heads.color, opacity: 1, line: { width: 0 } };
  return [...lines, { type: "scatter", mode: "markers", x: heads.x, y: heads.y, hoverinfo: "skip", marker }];
}

function lagColour(kind) {
  return LAG_COLOURS[isDark() ? "dark" : "light"][kind];
}

function hoverTraces(arrows, dashed, curve) {
  const spots = { x: [], y: [], text: [] };
  const add = (source, target, words) => {
    for (const at of [6, 9]) {
      const [x, y] = curve(source, target)[at];
      spots.x.push(x); spots.y.push(y); spots.text.push(words);
    }
  };
  for (const [source, target, share, lag, stability] of arrows) {
    const open = stability < 0 ? "" : `<br>at that lag the gate is open in ${percent(stability)} of the windows`;
    add(source, target, `<b>${plain(sensorName(source))} → ${plain(sensorName(target))}</b><br>` +
      `${percent(share)} of what ${plain(sensorName(target))} is filled from<br>most of it read ${page.data.network.lagWords[lag]}${open}`);
  }
  for (const [source, target] of dashed) {
    add(source, target, `${plain(sensorName(source))} is a neighbour of ${plain(sensorName(target))},<br>but less than 1% is drawn from it`);
  }
  return [{ type: "scatter", mode: "markers", ...spots, hoverinfo: "text", marker: { size: 16, opacity: 0 } }];
}

// The names are a trace of their own that holds only those shown: Plotly never shows a text again that was once empty.
function sensorTraces(arrows, pixel, curve, { inView, radius, width, height }) {
  const { sensors, network: { own } } = page.data;
  const involved = new Set(arrows.flatMap(([source, target]) => [source, target]));
  const faded = (sensor) => map.sensor >= 0 && sensor !== map.sensor && !involved.has(sensor);
  const size = sensors.map((_, sensor) => 2 * radius + (sensor === map.sensor ? 5 : 0));
  const points = sensors.map((_, sensor) => {
    const [x, y] = pixel(sensor);
    return { x, y, name: shortened(sensorName(sensor), 14), part: sensor === map.sensor || involved.has(sensor) };
  });
  const few = points.filter((_, sensor) => inView(sensor)).length <= MOST_NAMES;
  const lines = arrows.flatMap(([source, target]) => curve(source, target));
  const named = points.map((point, sensor) => ({ ...point, name: inView(sensor) && (few || (map.sensor >= 0 && point.part)) ? point.name : "" }));
  const labels = placedLabels(named, lines, { radius, width, height, chosen: map.sensor }).map(([name, side], sensor) => ({ ...points[sensor], name, side, size: size[sensor] }));
  const shown = labels.filter(({ name }) => name);
  const halo = colour("panel");
  const mine = sensors.map((name, sensor) => `<b>${plain(name)}</b>${own ? `<br>${percent(own[sensor])} from its own readings at other times` : ""}`);
  return [
    {
      type: "scatter", mode: "markers+text", x: shown.map(({ x }) => x), y: shown.map(({ y }) => y), hoverinfo: "skip", cliponaxis: true,
      text: shown.map(({ name }) => plain(name)), textposition: shown.map(({ side }) => side),
      textfont: { size: 11.5, color: colour("ink"), shadow: `0 0 2px ${halo}, 0 0 3px ${halo}, 0 0 4px ${halo}` },
      marker: { size: shown.map((point) => point.size), opacity: 0 }, // keeps names as far off as the dots below need it
    },
    {
      type: "scatter", mode: "markers", x: points.map(({ x }) => x), y: points.map(({ y }) => y), hovertext: mine, hoverinfo: "text",
      marker: {
        size, color: sensors.map((_, sensor) => (sensor === map.sensor ? colour("orange") : colour("panel"))),
        opacity: sensors.map((_, sensor) => (faded(sensor) ? 0.35 : 1)), line: { width: 1.6, color: colour("ink") },
      },
    },
  ];
}

// A round number of kilometres, about an eighth of the map.
function scaleBar({ perPixel, width }, height) {
  const about = perPixel * width / 8;
  const power = 10 ** Math.floor(Math.log10(about));
  const km = [1, 2, 5, 10].map((part) => part * power).findLast((size) => size <= about) ?? power;
  const y = height - 16;
  return {
    shape: { type: "line", x0: 14, x1: 14 + km / perPixel, y0: y, y1: y, line: { color: colour("soft"), width: 2 } },
    label: {
      x: 14, y: y - 3, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 11, color: colour("soft") },
      text: km >= 1 ? `${km} km` : `${Math.round(1000 * km)} m`,
    },
  };
}

function tellNetwork(drawn, count, seen, dashed) {
  const { network } = page.data;
  byId("map-least-shown").textContent = percent(map.least);
  byId("map-least").setAttribute("aria-valuetext", percent(map.least));
  const kinds = [...new Set(drawn.map((arrow) => lagClass(arrow[3])))].sort((a, b) => b - a);
  byId("map-key").replaceChildren(
    ...kinds.map((kind) => keyItem(`read ${network.lagClasses[kind].words}`, (mark) => { mark.style.background = lagColour(kind); })),
    ...(dashed.length ? [keyItem("neighbour, but shut out: less than 1% is drawn from it", (mark) => mark.classList.add("dashed"))] : []),
  );
  byId("map-note").textContent = map.sensor < 0 ? wordsForAll(drawn, count, seen) : wordsForOne(drawn);
  byId("map-chart").setAttribute("aria-label", `Map of the sensors. ${byId("map-note").textContent}`);
  if (network.arrows.length === 0) byId("map-note").textContent = "The model draws on no other sensor by one percent or more.";
}

function keyItem(words, paint) {
  const item = document.createElement("li");
  const mark = document.createElement("i");
  paint(mark);
  item.append(mark, words);
  return item;
}

function wordsForAll(drawn, count, seen) {
  const all = page.data.network.arrows.length;
  const these = `${count.toLocaleString("en")} of ${all.toLocaleString("en")} arrows weigh ${percent(map.least)} or more`;
  const some = drawn.length < seen ? `; the strongest ${drawn.length}${seen < count ? " in view" : ""} are drawn` : "";
  const hint = page.printing ? "" : " Choose a sensor, or click on one, to see only its causes.";
  return `${these}${some}.${hint}`;
}

function wordsForOne(drawn) {
  const { own, lagWords } = page.data.network;
  const told = drawn.map(([source, , share, lag]) => `${sensorName(source)} ${percent(share)} (mostly read ${lagWords[lag]})`);
  if (!told.length) told.push(`no other sensor by ${percent(map.least)} or more`);
  if (own) told.unshift(`its own readings at other times ${percent(own[map.sensor])}`);
  const rest = 1 - drawn.reduce((sum, arrow) => sum + arrow[2], own ? own[map.sensor] : 0);
  if (rest >= 0.005) told.push(`weaker ones ${percent(rest)}`);
  return `${sensorName(map.sensor)} is filled from: ${told.join(", ")}.`;
}
