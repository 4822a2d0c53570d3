// A whole OAuth login of the TypeScript SDK: PLACE URL REDIRECT. It prints the address to open in a browser, and reads
// the one where the browser ended.
import { createInterface } from "node:readline/promises";

const [place, url, redirect] = process.argv.slice(2), kept = {};
const sdk = (name) => import(`${place}/node_modules/@modelcontextprotocol/sdk/dist/esm/client/${name}.js`);
const { Client } = await sdk("index"), { StreamableHTTPClientTransport } = await sdk("streamableHttp");
const { UnauthorizedError } = await sdk("auth");

const authProvider = {
	redirectUrl: redirect,
	clientMetadata: { client_name: "Desk", redirect_uris: [redirect], token_endpoint_auth_method: "client_secret_post" },
	clientInformation: () => kept.client, saveClientInformation: (value) => { kept.client = value; },
	tokens: () => kept.tokens, saveTokens: (value) => { kept.tokens = value; },
	codeVerifier: () => kept.verifier, saveCodeVerifier: (value) => { kept.verifier = value; },
	redirectToAuthorization: (address) => { console.log(address.href); },
};
const transport = () => new StreamableHTTPClientTransport(new URL(url), { authProvider });
const connected = async (by) => {
	const client = new Client({ name: "desk", version: "1" });
	await client.connect(by);
	return client;
};
const first = transport();
const client = await connected(first).catch(async (error) => {
	if (!(error instanceof UnauthorizedError)) throw error;
	const lines = createInterface({ input: process.stdin });
	const back = new URL(await new Promise((resolve) => lines.once("line", resolve)));
	lines.close();
	await first.finishAuth(back.searchParams.get("code"));
	return connected(transport());
});
kept.tokens.access_token = "klaw_old"; // the refresh token gets another one
const { tools } = await client.listTools();
const { structuredContent } = await client.callTool({ name: "search", arguments: { query: "tulips" } });
console.log(JSON.stringify({ tools: tools.map(({ name }) => name), results: structuredContent.results }));
await client.close();
