// In the order of the menu. A view is a custom element, the default of a module of views/: `where` holds what stands
// behind its name in the address, `go(where)` changes that. With `operator` only whoever runs the server has it; one
// `within` another has no place in the menu; a `rare` one stands behind "More" on a phone.

export const VIEWS = [
	{ path: "chats", name: "Chats" },
	{ path: "knowledge", name: "Knowledge" },
	{ path: "memory", name: "Memory" },
	{ path: "tasks", name: "Tasks" },
	{ path: "usage", name: "Usage", rare: true },
	{ path: "system", name: "System", operator: true, rare: true },
	{ path: "channels", name: "Channels", within: "system" },
	{ path: "access", name: "Access", within: "system" },
	{ path: "mcp", name: "MCP", within: "system", operator: true },
	{ path: "import", name: "Import", within: "system" },
	{ path: "backups", name: "Backups", within: "system", operator: true },
	{ path: "settings", name: "Settings", within: "system", operator: true },
];
