// All views, in the order of the menu. A view is a module of views/ with a custom element: `where` holds what stands
// behind its name in the address, `go(where)` changes that. With `operator` only whoever runs the server has it; one
// `within` another has no place in the menu. A module is loaded when its view is first opened: the first paint waits for none of the others.

export const VIEWS = [
  { path: "chats", name: "Chats", sign: "✉" },
  { path: "knowledge", name: "Knowledge", sign: "❐" },
  { path: "memory", name: "Memory", sign: "❋" },
  { path: "tasks", name: "Tasks", sign: "◔" },
  { path: "usage", name: "Usage", sign: "∑" },
  { path: "system", name: "System", sign: "⚙", operator: true },
  { path: "settings", name: "Settings", within: "system", operator: true },
];
