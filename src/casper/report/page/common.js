// What all charts share: the numbers, the clock, the colours of the theme, and how a chart is put on the page.

const byId = (id) => document.getElementById(id);
const page = { data: null, printing: false };
const PRINTED_WIDTH = 680;

async function unpacked(id) {
  const letters = atob(byId(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function seeThrough(hex, alpha) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

// Sensors are named by their owners: Plotly must not read <b> or & in a name as markup.
function plain(name) {
  return String(name).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(name, most = 18) {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

function sensorName(number) {
  return page.data.sensors[number];
}

// Charts live on one clock that never jumps; it is written as if it were UTC.
// Months have no fixed length: their times are listed, and what lies between or beyond them is counted on from there.
function timeOf(step) {
  const { start, step: seconds, times } = page.data.clock;
  if (!times) return Date.parse(`${start}Z`) + step * seconds * 1000;
  const whole = Math.min(Math.max(Math.floor(step), 0), times.length - 2);
  return times[whole] + (step - whole) * (times[whole + 1] - times[whole]);
}

function stepOf(time) {
  const { start, step: seconds, times } = page.data.clock;
  if (!times) return (time - Date.parse(`${start}Z`)) / (seconds * 1000);
  const later = times.findIndex((one) => one > time);
  const whole = Math.min(Math.max(later < 0 ? times.length : later, 1), times.length - 1) - 1;
  return whole + (time - times[whole]) / (times[whole + 1] - times[whole]);
}

function written(time) {
  const text = new Date(time).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, text.slice(17, 19) === "00" ? 16 : 19)}`;
}

function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}%`;
}

function number(value) {
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

function narrow() {
  return !page.printing && window.innerWidth < 640;
}

function widthOf(id) {
  return page.printing ? PRINTED_WIDTH : byId(id).clientWidth;
}

function axis(changes = {}) {
  return {
    color: colour("soft"),
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zerolinecolor: colour("line"),
    tickfont: { size: 11.5 },
    title: { font: { size: 12.5 }, standoff: 8 },
    fixedrange: true,
    automargin: true,
    ...changes,
  };
}

function put(id, traces, layout) {
  const ink = colour("ink");
  const base = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 8, t: 10, b: 8 },
    showlegend: false,
    dragmode: false,
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("soft"), font: { size: 12.5, color: ink }, align: "left" },
    width: widthOf(id),
  };
  return Plotly.react(id, traces, { ...base, ...layout }, { displayModeBar: false, responsive: false, doubleClick: false });
}

function fillSelect(select, options, chosen) {
  for (const [value, text] of options) select.add(new Option(text, value));
  if (chosen !== undefined) select.value = chosen;
}

// Where fingers scroll the page, a chart must not take their movements for itself.
function hasMouse() {
  return !narrow() && window.matchMedia("(pointer: fine)").matches;
}
