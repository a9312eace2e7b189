// Ego-graphs as SVG. Neighbours are drawn in rows beside the centre, so that labels never overlap nodes: incoming edges
// on the left, outgoing edges on the right. In narrow drawings, all neighbours are below the centre.

import { h, s } from "./dom.js";
import { fitted, inTwoLines, textWidth } from "./text_width.js";

const ROW = 36; // pixels between neighbours
const GAP = 10; // additional pixels between relations
const NODE = 13; // half the height of a neighbour
const NAME = 13;
const LABEL = 11.5;
const CENTRE = 15; // font sizes
const NARROW = { one: 400, both: 560, reasons: 900 }; // below these widths, neighbours are drawn below the centre
const MOST = { ego: 22, side: 11, reasons: 9 };

/**
 * A row is {name, title, label, away, href?, group?, effect?, note?}. `away` means that the edge leads from the centre
 * to the neighbour. `effect`, from -1 to 1, sets the width and colour of the edge.
 */

/** Create an element that redraws itself when its width changes. */
function drawing(paint, label) {
  const place = h("div", { class: "graph" });
  let width = 0;
  const observer = new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    const { shapes, height, left = 0, right = width } = paint(width);
    const box = `${left} 0 ${right - left} ${height}`;
    place.replaceChildren(
      s("svg", { viewBox: box, width: right - left, height, role: "group", "aria-label": label }, shapes),
    );
  });
  observer.observe(place);
  return place;
}

/** Draw the ego-graph of an entity, with up to 22 edges of various relations. */
export function egoGraph(centre, rows) {
  const drawn = fairly(rows, MOST.ego);
  const sides = new Set(drawn.map((row) => row.away)).size;
  const least = sides > 1 ? NARROW.both : NARROW.one;
  const paint = (width) =>
    width < least ? below([{ centre, rows: drawn }], width) : sidewaysLayout(centre, drawn, width);
  return { element: drawing(paint, `Links of ${centre.name}`), drawn: drawn.length };
}

/** Draw two ego-graphs side by side, with the explained link between them. */
export function reasonsGraph(query, candidate, link) {
  const [one, other] = [query, candidate].map((side) => ({ ...side, rows: side.rows.slice(0, MOST.reasons) }));
  const paint = (width) =>
    width < NARROW.reasons ? below([one, other], width, link) : faceToFace(one, other, link, width);
  const label = `The links of ${query.centre.name} and of ${candidate.centre.name}, by what each adds to the score`;
  return { element: drawing(paint, label), drawn: [one.rows.length, other.rows.length] };
}

/** Select edges of each relation in turn until there are enough; group them by relation. */
function fairly(rows, most) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.away} ${row.group}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const room = new Map([true, false].map((away) => [away, MOST.side]));
  const taken = new Map([...groups.keys()].map((key) => [key, 0]));
  for (let left = most, moved = true; left > 0 && moved;) {
    moved = false;
    for (const [key, members] of groups) {
      const { away } = members[0];
      if (left === 0 || taken.get(key) === members.length || room.get(away) === 0) continue;
      taken.set(key, taken.get(key) + 1);
      room.set(away, room.get(away) - 1);
      left -= 1;
      moved = true;
    }
  }
  return [...groups].flatMap(([key, members]) => members.slice(0, taken.get(key)));
}

// Wide drawings

function sidewaysLayout(centre, rows, width) {
  const box = centreBox(centre, 150);
  const [incoming, outgoing] = [rows.filter((row) => !row.away), rows.filter((row) => row.away)];
  const both = incoming.length > 0 && outgoing.length > 0;
  const room = (width - box.width) / (both ? 2 : 1) - 2;
  const [left, right] = [zones(incoming, room), zones(outgoing, room)];
  const height = Math.max(heightOf(incoming), heightOf(outgoing), box.height) + 16;
  const start = Math.max((width - left.width - box.width - right.width) / 2, 1) + left.width; // the centre's left edge
  const middle = height / 2;
  const shapes = [
    fan(incoming, left, start, middle, -1, box.height),
    fan(outgoing, right, start + box.width, middle, 1, box.height),
    centreShape(box, start, middle),
  ];
  return { shapes, height, right: width };
}

function faceToFace(query, candidate, link, width) {
  const boxes = [centreBox(query.centre, 130), centreBox(candidate.centre, 130)];
  const between = Math.min(Math.max(textWidth(link.label, LABEL, 600) + 44, 110), 180);
  const room = (width - boxes[0].width - boxes[1].width - between) / 2 - 2;
  const sides = [zones(query.rows, room), zones(candidate.rows, room)];
  const height = Math.max(heightOf(query.rows), heightOf(candidate.rows), 90) + 16;
  const whole = sides[0].width + boxes[0].width + between + boxes[1].width + sides[1].width;
  const first = Math.max((width - whole) / 2, 1) + sides[0].width; // the query's left edge
  const second = first + boxes[0].width + between;
  const middle = height / 2;
  const shapes = [
    fan(query.rows, sides[0], first, middle, -1, boxes[0].height),
    fan(candidate.rows, sides[1], second + boxes[1].width, middle, 1, boxes[1].height),
    guess(first + boxes[0].width + 4, second - 4, middle, link),
    centreShape(boxes[0], first, middle),
    centreShape(boxes[1], second, middle, "answer"),
  ];
  return { shapes, height, right: width };
}

/** Divide the width of a side into a curve, a straight line with the label, and the neighbour. */
function zones(rows, room) {
  if (!rows.length) return { curve: 0, label: 0, node: 0, width: 0 };
  const curve = Math.min(Math.max(room * 0.15, 30), 64);
  const widest = (size) => Math.max(...rows.map(size));
  const wantedLabel = widest((row) => textWidth(row.label, LABEL)) + 30;
  const wantedNode = widest((row) => nodeWidth(row));
  const left = room - curve;
  let label = Math.max(Math.min(wantedLabel, left - Math.min(wantedNode, left * 0.52)), 60);
  const node = Math.min(wantedNode, left - label, 300);
  label = Math.min(wantedLabel, left - node);
  return { curve, label, node, width: curve + label + node };
}

const nodeWidth = (row) => textWidth(row.name, NAME) + 24 + (row.note ? textWidth(row.note, LABEL, 600) + 10 : 0);

const isNewGroup = (rows, place) =>
  place > 0 && rows[place].group !== undefined && rows[place].group !== rows[place - 1].group;

function heightOf(rows) {
  return rows.reduce((sum, _, place) => sum + ROW + (isNewGroup(rows, place) ? GAP : 0), 0);
}

/** Draw the neighbours on one side of a centre; `x` is the centre's edge, `way` is 1 for right and -1 for left. */
function fan(rows, zone, x, middle, way, centreHeight) {
  let y = middle - heightOf(rows) / 2 - ROW / 2 + 4;
  const at = (distance) => x + way * distance;
  return rows.map((row, place) => {
    y += ROW + (isNewGroup(rows, place) ? GAP : 0);
    const spread =
      rows.length > 1 ? (place / (rows.length - 1) - 0.5) * Math.min(centreHeight - 14, 4 * rows.length) : 0;
    const from = middle + spread;
    const [bend, end] = [at(zone.curve), at(zone.curve + zone.label)];
    const tip = row.away ? end - way : bend + way * 2;
    const stop = row.away ? end - way * 7 : end;
    const [soon, late] = [at(zone.curve * 0.6), at(zone.curve * 0.35)];
    const path = `M${x} ${from} C${soon} ${from} ${late} ${y} ${bend} ${y} L${stop} ${y}`;
    return s(
      "g",
      { class: `edge ${signOf(row)}` },
      s("title", {}, row.title),
      s("path", { class: "line", d: path, "stroke-width": thickness(row) }),
      arrow(tip, y, row.away ? way : -way, row),
      label(row, (bend + end) / 2, y - 6 - thickness(row) / 2, zone.label - 20),
      node(row, way > 0 ? end : end - zone.node, y, zone.node, way > 0),
    );
  });
}

// Narrow drawings

/** Draw each centre with its neighbours below it, and a second centre below the first. */
function below(sides, width, link) {
  const shapes = [];
  let y = 8;
  sides.forEach((side, number) => {
    const box = centreBox(side.centre, width - 60);
    if (number > 0) {
      shapes.push(fall(y - 4, y + 52, link, width));
      y += 56;
    }
    shapes.push(centreShape(box, 1, y + box.height / 2, number ? "answer" : ""));
    y += box.height;
    const top = y;
    const [rail, to] = [18, 56];
    const lines = side.rows.map((row) => {
      y += 50;
      const at = y - NODE - 2;
      return s(
        "g",
        { class: `edge ${signOf(row)}` },
        s("title", {}, row.title),
        s("path", { class: "line rail", d: `M${rail} ${top} L${rail} ${at}`, "stroke-width": 1.6 }),
        s("path", {
          class: "line",
          d: `M${row.away ? rail : rail + 9} ${at} L${row.away ? to - 8 : to} ${at}`,
          "stroke-width": thickness(row),
        }),
        arrow(row.away ? to - 1 : rail + 2, at, row.away ? 1 : -1, row),
        label(row, to + 2, at - NODE - 6, width - to - 8, "start"),
        node(row, to, at, Math.min(nodeWidth(row), width - to - 2), true),
      );
    });
    shapes.push(lines);
    if (side.rows.length) y += 10;
  });
  return { shapes, height: y + 4, right: width };
}

// Pieces

function centreBox(centre, most) {
  const lines = inTwoLines(centre.name, most, CENTRE, 600);
  const width = Math.max(...lines.map((line) => textWidth(line, CENTRE, 600))) + 30;
  return { lines, title: centre.title ?? centre.name, width: Math.max(width, 64), height: 22 + 20 * lines.length };
}

function centreShape(box, x, middle, kind = "") {
  const first = middle - (box.lines.length - 1) * 10 + 5;
  return s(
    "g",
    { class: `centre ${kind}` },
    s("title", {}, box.title),
    s("rect", { x, y: middle - box.height / 2, width: box.width, height: box.height, rx: 14 }),
    box.lines.map((line, row) =>
      s("text", { x: x + box.width / 2, y: first + 20 * row, "text-anchor": "middle" }, line),
    ),
  );
}

/** Draw a neighbour, as a link if it has a page. */
function node(row, x, y, most, fromLeft) {
  const noteWidth = row.note ? textWidth(row.note, LABEL, 600) + 10 : 0;
  const width = Math.min(nodeWidth(row), most);
  const name = fitted(row.name, width - 22 - noteWidth, NAME);
  const start = fromLeft ? x : x + most - width;
  const shapes = [
    s("rect", { x: start, y: y - NODE, width, height: 2 * NODE, rx: 9 }),
    s("text", { x: start + 12, y: y + 4.5 }, name),
    row.note && s("text", { class: "note", x: start + width - 11, y: y + 4, "text-anchor": "end" }, row.note),
  ];
  if (!row.href) return s("g", { class: "node" }, shapes);
  return s("a", { class: "node", href: row.href, "aria-label": row.title }, shapes);
}

function label(row, x, y, most, anchor = "middle") {
  const shown = fitted(row.label, Math.max(most, 24), LABEL);
  return s("text", { class: "label", x, y, "text-anchor": anchor }, shown);
}

function arrow(x, y, way, row) {
  const [length, half] = [8, Math.max(4.2, thickness(row) / 2 + 2.5)];
  return s("path", {
    class: "arrow",
    d: `M${x} ${y} L${x - way * length} ${y - half} L${x - way * length} ${y + half} Z`,
  });
}

/** Draw the explained link as a dashed horizontal arrow. */
function guess(from, to, y, link) {
  const way = link.forward ? 1 : -1;
  const [tail, tip] = link.forward ? [from, to] : [to, from];
  return s(
    "g",
    { class: "guess" },
    s("title", {}, link.title),
    s("path", { d: `M${tail} ${y} L${tip - way * 8} ${y}` }),
    s("path", { class: "arrow", d: `M${tip} ${y} L${tip - way * 9} ${y - 5} L${tip - way * 9} ${y + 5} Z` }),
    s(
      "text",
      { x: (from + to) / 2, y: y - 10, "text-anchor": "middle" },
      fitted(link.label, to - from - 8, LABEL, 600),
    ),
  );
}

/** Draw the explained link as a dashed vertical arrow. */
function fall(from, to, link, width) {
  const way = link.forward ? 1 : -1;
  const [tail, tip] = link.forward ? [from, to] : [to, from];
  return s(
    "g",
    { class: "guess" },
    s("title", {}, link.title),
    s("path", { d: `M34 ${tail} L34 ${tip - way * 8}` }),
    s("path", { class: "arrow", d: `M34 ${tip} L29 ${tip - way * 9} L39 ${tip - way * 9} Z` }),
    s("text", { x: 48, y: (from + to) / 2 + 4 }, fitted(link.label, width - 56, LABEL, 600)),
  );
}

const thickness = (row) => (row.effect === undefined ? 1.6 : 1 + 8 * Math.abs(row.effect));
const signOf = (row) => (row.effect === undefined ? "" : row.effect >= 0 ? "for" : "against");
