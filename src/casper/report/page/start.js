// Unpack, draw one chart after the other, and redraw when theme, width or paper change.

const CHARTS = [drawCoverage, drawErrors, drawSeries, drawNetwork, drawAttention];

function present(draw) {
  return draw !== drawErrors || page.data.errors.length > 0;
}

async function drawAll() {
  for (const draw of CHARTS.filter(present)) {
    await draw();
    await new Promise((resume) => setTimeout(resume)); // let the reader scroll in between
  }
}

function drawAtOnce() {
  for (const draw of CHARTS.filter(present)) draw();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  byId("theme").setAttribute("aria-label", theme === "dark" ? "Switch to the light theme" : "Switch to the dark theme");
}

function startTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let own = false;
  setTheme(document.documentElement.dataset.theme);
  byId("theme").addEventListener("click", () => {
    own = true;
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    if (page.data) drawAtOnce();
  });
  system.addEventListener("change", () => {
    if (own) return;
    setTheme(system.matches ? "dark" : "light");
    if (page.data) drawAtOnce();
  });
}

function followSizes() {
  let width = window.innerWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width || page.printing) return; // a phone hides its address bar: nothing to redraw
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAtOnce, 150);
  });
  const paper = (printing, theme) => {
    page.printing = printing;
    document.documentElement.dataset.theme = theme;
    drawAtOnce();
  };
  let theme = "light";
  window.addEventListener("beforeprint", () => { theme = document.documentElement.dataset.theme; paper(true, "light"); });
  window.addEventListener("afterprint", () => paper(false, theme));
}

function fail(words) {
  document.body.classList.add("broken");
  byId("trouble").textContent = words;
  byId("trouble").hidden = false;
}

async function start() {
  startTheme();
  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to unpack the charts (Chrome 97, Firefox 113 or Safari 16.4 and later can). The sentences and tables below are complete.");
    return;
  }
  try {
    const library = document.createElement("script");
    library.textContent = await unpacked("library");
    document.head.append(library);
    page.data = JSON.parse(await unpacked("numbers"));
    startSeries();
    startNetwork();
    startAttention();
    await drawAll();
    followSizes();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    fail(`The charts cannot be drawn: ${error.message}. The sentences and tables below are complete.`);
    console.error(error);
  }
}

start();
