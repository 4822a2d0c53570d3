// What a model thinks, folded. Nothing stores it: it stays as long as the page shows the chat.

import { h, t } from "../page.js";

/** Show a piece, also of an answer that was complete before this module was loaded. */
export function think(live, frame) {
  if (!live.thinking || (live.thinking.over && !live.row)) {
    live.thinking = new Thinking();
    if (live.row) live.row.prepend(live.thinking.node);
    else live.text.before(live.thinking.node);
  }
  live.thinking.take(frame);
  if (live.length || live.row) live.thinking.end();
}

class Thinking {
  length = 0;
  over = false;

  constructor() {
    this.began = performance.now();
    this.head = h("summary");
    this.text = document.createTextNode("");
    this.node = h("details.fold.thinking", this.head, h("div.text.plain", { tabIndex: 0 }, this.text));
    this.tell("Thinking… {count} s");
    this.timer = setInterval(() => (this.node.isConnected ? this.tell("Thinking… {count} s") : this.end()), 1000);
  }

  /** Pieces may be missing. */
  take({ offset, text }) {
    if (this.length && offset !== this.length) this.text.appendData(offset ? " … " : "\n\n");
    this.text.appendData(text);
    this.length = offset + Array.from(text).length;
  }

  end() {
    if (this.over) return;
    this.over = true;
    clearInterval(this.timer);
    this.tell("Thought for {count} s");
  }

  tell(words) {
    this.head.textContent = t(words, { count: Math.round((performance.now() - this.began) / 1000) });
  }
}
