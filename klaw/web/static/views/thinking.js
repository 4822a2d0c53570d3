// What a model thinks, folded. Nothing stores it: it stays as long as the page shows the chat.

import { h, t } from "../page.js";

/** Show a piece, also of an answer that was complete before this module was loaded. */
export function think(live, frame) {
  if (!live.thinking || (live.thinking.over && !live.row)) {
    live.thinking = thinking();
    if (live.row) live.row.prepend(live.thinking.node);
    else live.text.before(live.thinking.node);
  }
  live.thinking.take(frame);
  if (live.length || live.row) live.thinking.end();
}

function thinking() {
  const began = performance.now(), head = h("summary"), said = document.createTextNode("");
  const node = h("details.fold.thinking", head, h("div.text.plain", { tabIndex: 0 }, said));
  const tell = (words) => { head.textContent = t(words, { count: Math.round((performance.now() - began) / 1000) }); };
  const goesOn = () => tell("Thinking… {count} s");
  const timer = setInterval(() => (node.isConnected ? goesOn() : made.end()), 1000);
  let length = 0;
  const made = {
    node,
    over: false,
    take({ offset, text }) {
      if (length && offset !== length) said.appendData(offset ? " … " : "\n\n"); // pieces may be missing
      said.appendData(text);
      length = offset + Array.from(text).length;
    },
    end() {
      if (made.over) return;
      made.over = true;
      clearInterval(timer);
      tell("Thought for {count} s");
    },
  };
  goesOn();
  return made;
}
