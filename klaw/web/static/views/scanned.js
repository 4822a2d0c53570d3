import { confirmed, get, post, t } from "../page.js";

/** The code leaves the address at once. Returns what to say. */
export async function enter() {
	const code = location.hash.split("/")[2];
	history.replaceState(null, "", "#/chats/");
	const me = await get("/me").catch(() => null);
	const question = me?.needs_token && t("You are logged in as {user}. Log in with the scanned code instead?", me);
	if (question && !await confirmed(question, "Log in")) return "";
	return post("/login", { code }).then((now) => t("Logged in as {user}.", now), (error) => error.message);
}
