// All views, in the order of the menu. A view is a custom element: `where` holds what stands behind its name in the
// address, `go(where)` changes that. With `operator` only whoever runs the server has it.

import "/static/views/chats.js";
import "/static/views/memory.js";
import "/static/views/tasks.js";
import "/static/views/system.js";
import "/static/views/usage.js";

export const VIEWS = [
  { path: "chats", name: "Chats", sign: "✉", element: "klaw-chats" },
  { path: "memory", name: "Memory", sign: "❋", element: "klaw-memory" },
  { path: "tasks", name: "Tasks", sign: "◔", element: "klaw-tasks" },
  { path: "usage", name: "Usage", sign: "∑", element: "klaw-usage" },
  { path: "system", name: "System", sign: "⚙", element: "klaw-system", operator: true },
];
