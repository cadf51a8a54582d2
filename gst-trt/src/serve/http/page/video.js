// SPDX-License-Identifier: MPL-2.0
// Videos in the page, by WHEP: an offer is posted, its answer has all that is needed, and DELETE of its address ends the video.

const FIRST_FRAME = 8000; // milliseconds
const STALLED = 10000;    // milliseconds without a frame
const POLL_INTERVAL = 250; // milliseconds

// A view may be open for days, so nothing of a wait is left at its signal.
const isOver = (signal) => new Promise((resolve) => {
  const end = () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
    resolve();
  };
  const timer = setTimeout(end, POLL_INTERVAL);
  signal.addEventListener("abort", end);
});

// Returns when the signal comes. Fails where there is no video, or none any more.
async function follow(video, peer, signal) {
  let [time, due] = [0, performance.now() + FIRST_FRAME];
  while (!signal.aborted) {
    if (video.currentTime !== time) [time, due] = [video.currentTime, performance.now() + STALLED];
    if (["failed", "closed"].includes(peer.connectionState)) throw new Error("The connection has ended.");
    // A page that nobody sees decodes nothing.
    if (document.hidden) due = performance.now() + STALLED;
    if (performance.now() > due) throw new Error("No frame comes.");
    await isOver(signal);
  }
}

// Shows the video of a source until the signal.
export async function showVideo(name, video, request, signal) {
  const peer = new RTCPeerConnection();
  let session = null;
  try {
    peer.addTransceiver("video", { direction: "recvonly" });
    peer.addEventListener("track", ({ track }) => { video.srcObject = new MediaStream([track]); });
    await peer.setLocalDescription();
    // The service answers those who ask it: addresses of this side need not be waited for.
    const answer = await request(`/sources/${encodeURIComponent(name)}/whep`, {
      method: "POST",
      headers: { "Content-Type": "application/sdp" },
      body: peer.localDescription.sdp,
    });
    session = answer.headers.get("Location");
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await follow(video, peer, signal);
  } finally {
    video.srcObject = null;
    // Before the connection is closed: the service would see that first, and forget the session.
    if (session && peer.connectionState !== "closed") await request(session, { method: "DELETE", keepalive: true }).catch(() => {});
    peer.close();
  }
}
