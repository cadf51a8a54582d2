// SPDX-License-Identifier: MPL-2.0
// The status page: asks for sources and models each second, and shows what they say.

import * as pictures from "/pictures.js";
import { showVideo } from "/video.js";

const $ = (selector, within = document) => within.querySelector(selector);
const STATES = { connecting: "◌ connecting", running: "● running", waiting: "▲ waiting to retry", ended: "■ ended", resting: "☾ resting" };
let token = sessionStorage.getItem("token");

// ---- requests

async function request(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...headers } });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `The service answers ${answer.status}.` }));
  throw Object.assign(new Error(error), { status: answer.status });
}

const read = async (path) => (await request(path)).json();

function say(text, isBad = false) {
  $("#message").textContent = text;
  $("#message").className = isBad ? "bad" : "";
  $("#message").hidden = !text;
}

// Asks for the token where it is missing or wrong, once.
async function change(method, path, body) {
  const options = { method, body: body && JSON.stringify(body) };
  try {
    return await request(path, options);
  } catch (error) {
    if (error.status !== 401 || !await askToken()) throw error;
    return request(path, options);
  }
}

async function tell(done, work) {
  try {
    await work();
    say(done);
    await update();
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

function askToken() {
  const dialog = $("#token");
  dialog.returnValue = "";
  $("input", dialog).value = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const given = $("input", dialog).value;
    if (dialog.returnValue !== "keep") return resolve(false);
    token = given;
    sessionStorage.setItem("token", given);
    resolve(true);
  }, { once: true }));
}

// ---- what is shown

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setError(element, error) {
  element.hidden = !error;
  setText(element, error ?? "");
}

const count = (number) => number.toLocaleString("en");
const ms = (seconds) => (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0);
const times = (found) => found ? `${ms(found.p50)} / ${ms(found.p95)} / ${ms(found.p99)} ms` : "–";

function figures(source) {
  const rows = [
    ["Frames per second", source.fps.toFixed(1)],
    ["Latency p50/p95/p99", times(source.latency)],
    ["Frames", count(source.frames)],
    ["Dropped, waiting", `${count(source.dropped)}, ${count(source.queued)}`],
    ["Objects now", count(source.objects)],
  ];
  if (source.gpu) rows.splice(2, 0, ["GPU p50/p95/p99", times(source.gpu)]);
  if (source["latency-from-camera"]) rows.splice(2, 0, ["From the camera", times(source["latency-from-camera"])]);
  const events = Object.entries(source.events).map(([kind, number]) => `${kind} ${count(number)}`);
  if (events.length) rows.push(["Events", events.join(", ")]);
  for (const { name, objects } of source.zones) {
    const inside = Object.entries(objects).filter(([, number]) => number).map(([kind, number]) => `${count(number)} ${kind}`);
    rows.push([`In ${name}`, inside.join(", ") || "nothing"]);
  }
  for (const { name, forward, backward } of source.lines) {
    rows.push([`Across ${name}`, `${count(forward)} forward, ${count(backward)} backward`]);
  }
  if (source.restarts) rows.push(["Restarts", count(source.restarts)]);
  if (source.recording) rows.push(["Recording", "yes"]);
  for (const ask of source.asks) {
    const counts = `${count(ask.answered)} of ${count(ask.asked)} answered, ${count(ask.failed)} failed`;
    rows.push([`Asked ${ask.name}`, ask["last-answer"] ? `${counts}: ${ask["last-answer"]}` : counts, ask.error ?? ""]);
  }
  for (const to of source.published) {
    const state = to.connected ? "" : ", not connected";
    rows.push([`To ${destination(to)}`, `${count(to.sent)} sent, ${count(to.dropped)} dropped${state}`, to.location]);
  }
  return rows;
}

// By its name in the configuration, else by its address, or the name of its file.
function destination({ name, location }) {
  if (name) return name;
  if (location === "-") return "standard output";
  return location.includes("://") ? location : location.split("/").pop();
}

function showFigures(list, rows) {
  while (list.children.length > rows.length * 2) list.lastChild.remove();
  while (list.children.length < rows.length * 2) list.append(document.createElement("dt"), document.createElement("dd"));
  rows.forEach(([name, value, title = ""], index) => {
    const [term, description] = [list.children[index * 2], list.children[index * 2 + 1]];
    setText(term, name);
    setText(description, value);
    term.title = description.title = title;
  });
}

const sourceCards = new Map();

function addSourceCard(source) {
  const card = $("#source").content.firstElementChild.cloneNode(true);
  setText($("h3", card), source.name);
  $("img", card).alt = `Picture of ${source.name}`;
  $(".picture", card).ariaLabel = `Live view of ${source.name}`;
  $(".picture", card).addEventListener("click", () => openLive(source.name));
  $(".remove", card).ariaLabel = `Remove ${source.name}`;
  $(".remove", card).addEventListener("click", () => {
    if (!confirm(`Remove the source ${source.name}?`)) return;
    tell(`${source.name} is removed.`, () => change("DELETE", `/sources/${encodeURIComponent(source.name)}`));
  });
  $("#sources").append(card);
  sourceCards.set(source.name, card);
  pictures.addCard(source.name, $("img", card));
  return card;
}

function showSources(sources) {
  for (const source of sources) {
    const card = sourceCards.get(source.name) ?? addSourceCard(source);
    setText($(".state", card), STATES[source.state]);
    $(".state", card).className = `state ${source.state}`;
    setText($(".address", card), `${source.address} · ${[source.model, ...source["on-objects"]].join(" + ")}`);
    $(".failure", card).hidden = !source.error && !source.cause;
    setText($(".cause", card), source.cause ?? "");
    setText($(".error", card), source.error ?? "");
    showFigures($("dl", card), figures(source));
    pictures.setRunning(source.name, source.state === "running");
  }
  const names = new Set(sources.map((source) => source.name));
  for (const [name, card] of sourceCards) {
    if (names.has(name)) continue;
    pictures.removeCard(name);
    card.remove();
    sourceCards.delete(name);
  }
  $("#no-sources").hidden = sources.length > 0;
}

const modelRows = new Map();

function addModelRow(model) {
  const row = $("#model").content.firstElementChild.cloneNode(true);
  setText($(".name", row), model.name);
  $("input", row).ariaLabel = `Other file for ${model.name}`;
  $("form", row).addEventListener("submit", (event) => {
    event.preventDefault();
    const file = $("input", row).value;
    tell(`${file} is being loaded for ${model.name}.`, () =>
      change("PUT", `/models/${encodeURIComponent(model.name)}`, { file }));
  });
  $("#models").append(row);
  if (model.on === "frames") $("#add select").append(new Option(model.name));
  modelRows.set(model.name, row);
  return row;
}

function showModels(models) {
  for (const model of models) {
    const row = modelRows.get(model.name) ?? addModelRow(model);
    const isBusy = model.progress !== null;
    const state = model.loaded ? "loaded" : model.error ? "failed" : "loading";
    $(".on-objects", row).hidden = model.on !== "objects";
    setText($(".file", row), model.file);
    const verdicts = new Map([[true, ", verified"], [false, ", wrong results"]]);
    setText($(".backend", row), (model.backend ?? "–") + (model.loaded && verdicts.get(model.verified) || ""));
    setText($(".state", row), isBusy ? `building ${Math.round(model.progress * 100)} %` : state);
    $(".state", row).className = `state ${state}`;
    $("progress", row).hidden = !isBusy;
    $("progress", row).value = model.progress ?? 0;
    setError($(".error", row), model.error);
  }
  const names = new Set(models.map((model) => model.name));
  for (const [name, row] of modelRows) {
    if (names.has(name)) continue;
    row.remove();
    modelRows.delete(name);
    [...$("#add select").options].find((option) => option.value === name)?.remove();
  }
}

// Why those failed that wait, each cause once.
function causes(sources) {
  const found = sources.filter(({ state, cause }) => state === "waiting" && cause).map(({ cause }) => cause);
  return found.length ? `: ${[...new Set(found)].join(", ")}` : "";
}

function showSummary(sources) {
  const of = (state) => sources.filter((source) => source.state === state).length;
  const fps = sources.reduce((sum, source) => sum + source.fps, 0);
  const parts = [`${of("running")} of ${sources.length} running`, `${fps.toFixed(0)} fps`];
  if (of("waiting")) parts.push(`${of("waiting")} failed${causes(sources)}`);
  setText($("#summary"), parts.join(" · "));
}

let isCut = false;

async function update() {
  try {
    const [sources, models] = await Promise.all([read("/sources"), read("/models")]);
    if (isCut) say("");
    isCut = false;
    showModels(models);
    showSources(sources);
    showSummary(sources);
  } catch (error) {
    isCut = true;
    setText($("#summary"), "No data");
    if (error.status === 401) say("The sources are shown with the token. Enter it with the button above.", true);
    else say(error.status ? error.message : "The service does not answer. This page tries again each second.", true);
  }
}

// ---- what is asked for

let openView = null;
const hasVideos = $("meta[name=videos]").content === "webrtc";

// A video where the service and the browser have one for each other, and pictures in all other cases.
async function playVideo(name, video, signal) {
  if (!hasVideos || !window.RTCPeerConnection) return;
  video.hidden = false;
  try {
    await showVideo(name, video, request, signal);
  } catch (error) {
    if (!signal.aborted) console.info(`No video of ${name}: ${error.message} Pictures are shown.`);
  } finally {
    video.hidden = true;
  }
}

async function openLive(name) {
  const dialog = $("#live");
  const view = openView = new AbortController();
  const [image, video] = [$("img", dialog), $("video", dialog)];
  setText($("h2", dialog), name);
  image.alt = video.ariaLabel = `Live view of ${name}`;
  image.removeAttribute("src");
  image.hidden = true;
  dialog.showModal();
  try {
    await playVideo(name, video, view.signal);
    if (view.signal.aborted) return;
    image.hidden = false;
    await pictures.showLive(name, image, request, view.signal);
  } catch (error) {
    if (view.signal.aborted) return;
    say(error.message, true);
  }
  if (openView === view) dialog.close();
}

$("#live").addEventListener("close", () => openView?.abort());

$("#add form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { more, ...source } = Object.fromEntries(new FormData(event.target));
  tell(`${source.name} is added.`, async () => {
    Object.assign(source, JSON.parse(more || "{}"));
    await change("POST", "/sources", source);
    event.target.reset();
  });
});

$("#enter-token").addEventListener("click", async () => {
  if (await askToken()) update();
});

function showPause(isPaused) {
  $("#pause").ariaPressed = String(isPaused);
}

$("#pause").addEventListener("click", () => showPause(pictures.togglePause()));
showPause(pictures.isPausedNow());

setInterval(() => document.hidden || pictures.refreshCards(request), 50);

for (;;) {
  if (!document.hidden) await update();
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
