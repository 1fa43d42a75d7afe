// The stream of events, shared by all open pages of a browser: it has six connections to a site, and
// each page would hold one. A browser without shared workers has a stream for each page that is seen.
"use strict";

const PAUSE = 3000;  // milliseconds, where the browser itself gives up: after a proxy's 502, say

// Tells "there", "lost" and "changed" while it is watched.
function listen(url, tell) {
  let stream = null;
  let again = 0;

  function begin() {
    stream = new EventSource(url);
    stream.onopen = () => tell("there");
    stream.onmessage = () => tell("changed");
    stream.onerror = () => {
      tell("lost");
      if (stream.readyState !== EventSource.CLOSED) return;  // it tries again by itself
      stream = null;
      again = setTimeout(begin, PAUSE);
    };
  }

  return (watched) => {
    clearTimeout(again);
    if (watched && !stream) begin();
    if (!watched && stream) { stream.close(); stream = null; }
  };
}

if ("onconnect" in self) {  // this is the shared worker
  const pages = new Map();  // whether each is seen
  let link = null;
  const watch = listen("../live", (word) => {
    if (word !== "changed") link = word;
    for (const page of pages.keys()) page.postMessage(word);
  });
  self.onconnect = ({ ports: [page] }) => {
    page.onmessage = ({ data }) => {
      if (data === "gone") pages.delete(page); else pages.set(page, data === "seen");
      if (data === "seen" && link) page.postMessage(link);
      const watched = [...pages.values()].includes(true);
      if (!watched) link = null;
      watch(watched);
    };
  };
}
