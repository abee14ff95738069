// Names beside dots: each goes to the side where it covers neither a name nor a dot, and as little of the arrows as
// possible. Where no side is free, the name is left out; the pointer tells it. Only when one sensor is chosen, it and its
// causes get their names in any case: over dots that take no part, if it must be over all else.

const SIDES = [
  ["middle right", (w, h, r) => [r, -h / 2]],
  ["middle left", (w, h, r) => [-w - r, -h / 2]],
  ["top center", (w, h, r) => [-w / 2, -h - r]],
  ["bottom center", (w, h, r) => [-w / 2, r]],
  ["top right", (w, h, r) => [r * 0.7, -h - r * 0.5]],
  ["bottom right", (w, h, r) => [r * 0.7, r * 0.5]],
  ["top left", (w, h, r) => [-w - r * 0.7, -h - r * 0.5]],
  ["bottom left", (w, h, r) => [-w - r * 0.7, r * 0.5]],
];

// points: {x, y, name, part} in pixels; those that take part choose before the others, those without a name do not
// choose. lines: points that had better stay free. chosen: one of the points, or -1. Gives [name, side] for each.
function placedLabels(points, lines, { radius, width, height, chosen }) {
  const dots = points.map(({ x, y }) => [x - radius, y - radius, x + radius, y + radius]);
  const taken = [];
  const result = points.map(() => ["", "middle right"]);
  const rank = (place) => (place === chosen ? 2 : points[place].part ? 1 : 0);
  const order = points.map((_, place) => place).sort((a, b) => rank(b) - rank(a));
  for (const place of order) {
    const { x, y, name } = points[place];
    if (!name) continue;
    const must = chosen >= 0 && points[place].part;
    let best = null;
    for (const [side, corner] of SIDES) {
      const [w, h] = [6.6 * name.length + 4, 14];
      const [dx, dy] = corner(w, h, radius + 3);
      const box = [x + dx, y + dy, x + dx + w, y + dy + h];
      if (box[0] < 0 || box[1] < 0 || box[2] > width || box[3] > height) continue;
      const covers = (other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3];
      const covered = dots.map((_, other) => other).filter((other) => other !== place && covers(dots[other]));
      const names = taken.filter(covers).length;
      if (!must && (names || covered.length)) continue;
      const crossed = lines.reduce((sum, [a, b]) => sum + (a > box[0] && a < box[2] && b > box[1] && b < box[3] ? 1 : 0), 0);
      // Any number of points of arrows is better than one dot, of idle dots than one of those that take part, and so on.
      const harm = [names, covered.filter((other) => points[other].part).length, covered.length, crossed];
      if (!best || less(harm, best.harm)) best = { side, box, harm };
      if (!harm.some(Boolean)) break;
    }
    if (!best) continue;
    taken.push(best.box);
    result[place] = [name, best.side];
  }
  return result;
}

// The first number that differs decides.
function less(one, other) {
  const place = one.findIndex((value, at) => value !== other[at]);
  return place >= 0 && one[place] < other[place];
}
