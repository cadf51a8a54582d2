// SPDX-License-Identifier: MPL-2.0
// Pictures in the page. Browsers keep at most six connections to a server, so cards share a few, and only one view is live.

const AT_ONCE = 3;      // connections for the cards
const PAUSE = 200;      // milliseconds between two pictures of a card
const RETRY = 2000;     // milliseconds after one that failed

const cards = new Map(); // name -> { image, due, busy, isRunning, isVisible }
let isPaused = matchMedia("(prefers-reduced-motion: reduce)").matches;

const visibility = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    for (const card of cards.values()) {
      if (card.image.parentElement === entry.target) card.isVisible = entry.isIntersecting;
    }
  }
});

// The picture before is freed when the next one is shown.
function show(image, blob) {
  const before = image.src;
  image.src = URL.createObjectURL(blob);
  if (before) URL.revokeObjectURL(before);
}

// As long as it has an address, a picture stays in memory.
function release(image) {
  if (image.src) URL.revokeObjectURL(image.src);
  image.removeAttribute("src");
}

export function addCard(name, image) {
  cards.set(name, { image, due: 0, busy: false, isRunning: false, isVisible: false });
  visibility.observe(image.parentElement);
}

export function removeCard(name) {
  const card = cards.get(name);
  cards.delete(name);
  visibility.unobserve(card.image.parentElement);
  release(card.image);
}

export function setRunning(name, isRunning) {
  cards.get(name).isRunning = isRunning;
}

export function togglePause() {
  isPaused = !isPaused;
  return isPaused;
}

export const isPausedNow = () => isPaused;

async function refresh(name, card, request) {
  card.busy = true;
  try {
    const answer = await request(`/sources/${encodeURIComponent(name)}/snapshot.jpg`);
    const blob = await answer.blob();
    if (cards.get(name) === card) show(card.image, blob);
    card.due = Date.now() + PAUSE;
  } catch {
    card.due = Date.now() + RETRY; // the status says why
  } finally {
    card.busy = false;
  }
}

// Asks for the pictures that are due, the oldest first. The first picture of a card comes even if pictures are paused.
export function refreshCards(request) {
  const all = [...cards.entries()];
  const free = AT_ONCE - all.filter(([, card]) => card.busy).length;
  const due = all.filter(([, card]) =>
    card.isRunning && card.isVisible && !card.busy && card.due <= Date.now() && !(isPaused && card.image.src));
  due.sort(([, one], [, other]) => one.due - other.due);
  for (const [name, card] of due.slice(0, free)) refresh(name, card, request);
}

// Shows a live view until the signal. It is fetched, as an <img> could not send the token.
export async function showLive(name, image, request, signal) {
  const answer = await request(`/sources/${encodeURIComponent(name)}/live.mjpeg`, { signal });
  try {
    await showParts(answer.body.getReader(), image);
  } finally {
    release(image);
  }
}

async function showParts(reader, image) {
  const text = new TextDecoder("latin1");
  let bytes = new Uint8Array();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(bytes.length + value.length);
    joined.set(bytes);
    joined.set(value, bytes.length);
    bytes = joined;
    for (;;) {
      const head = text.decode(bytes.subarray(0, 256));
      const end = head.indexOf("\r\n\r\n") + 4;
      const length = Number(/Content-Length: (\d+)/.exec(head)?.[1]);
      if (end < 4 || bytes.length < end + length) break;
      show(image, new Blob([bytes.subarray(end, end + length)], { type: "image/jpeg" }));
      bytes = bytes.slice(end + length);
    }
  }
}
